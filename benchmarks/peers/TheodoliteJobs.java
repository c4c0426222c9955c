import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/** The use cases of Theodolite, as those of https://github.com/cau-se/theodolite, with JSON. */
final class TheodoliteJobs {
  private static final ZoneId ZONE = ZoneId.of("Europe/Paris");
  private static final Serde<JsonNode> VALUES = JsonValues.SERDE;

  static Topology topology(String useCase, String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, JsonNode> records =
        builder.stream(source, Consumed.with(Serdes.String(), VALUES));
    switch (useCase) {
      case "uc1" ->
          records
              .mapValues(TheodoliteJobs::line)
              .to(sink, Produced.with(Serdes.String(), Serdes.String()));
      case "uc2" ->
          statistics(records, TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
              .toStream()
              .map((key, found) -> KeyValue.pair(key.key(), ofSensor(key, found)))
              .to(sink, Produced.with(Serdes.String(), VALUES));
      case "uc3" ->
          statistics(
                  records.selectKey((sensor, record) -> sensor + ";" + hour(record)),
                  TimeWindows.ofSizeWithNoGrace(Duration.ofDays(30)).advanceBy(Duration.ofDays(1)))
              .toStream()
              .map((key, found) -> KeyValue.pair(key.key().split(";")[0], ofHour(key, found)))
              .to(sink, Produced.with(Serdes.String(), VALUES));
      default -> throw new IllegalArgumentException("no such use case: " + useCase);
    }
    return builder.build();
  }

  private static String line(JsonNode record) {
    return "power,sensor="
        + record.get("identifier").asText()
        + " value="
        + watts(record)
        + " "
        + record.get("timestamp").asLong();
  }

  private static int hour(JsonNode record) {
    return Instant.ofEpochMilli(record.get("timestamp").asLong()).atZone(ZONE).getHour();
  }

  private static double watts(JsonNode record) {
    return record.get("valueInW").asDouble();
  }

  private static KTable<Windowed<String>, Statistics> statistics(
      KStream<String, JsonNode> records, TimeWindows windows) {
    return records
        .groupByKey(Grouped.with("ByKey", Serdes.String(), VALUES))
        .windowedBy(windows)
        .aggregate(
            () -> Statistics.NONE,
            (key, record, before) -> before.with(watts(record)),
            Materialized.with(Serdes.String(), Statistics.SERDE));
  }

  private static JsonNode ofSensor(Windowed<String> key, Statistics found) {
    return found.row(JsonValues.MAPPER.createObjectNode().put("sensor", key.key()), key);
  }

  private static JsonNode ofHour(Windowed<String> key, Statistics found) {
    String[] parts = key.key().split(";");
    ObjectNode row = JsonValues.MAPPER.createObjectNode().put("sensor", parts[0]);
    return found.row(row.put("hour", Integer.parseInt(parts[1])), key);
  }

  /** Statistics of numbers; the variance is by Welford's algorithm, as in Guava. */
  private record Statistics(
      long count, double sum, double min, double max, double mean, double squares) {
    static final Statistics NONE =
        new Statistics(0, 0, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, 0, 0);
    static final Serde<Statistics> SERDE =
        Serdes.serdeFrom(
            (topic, found) -> found == null ? null : found.bytes(),
            (topic, bytes) -> bytes == null ? null : read(ByteBuffer.wrap(bytes)));

    Statistics with(double value) {
      long more = count + 1;
      double off = value - mean;
      double newMean = mean + off / more;
      return new Statistics(
          more,
          sum + value,
          Math.min(min, value),
          Math.max(max, value),
          newMean,
          squares + off * (value - newMean));
    }

    JsonNode row(ObjectNode row, Windowed<String> key) {
      return row.put("start", key.window().start())
          .put("count", count)
          .put("sum", sum)
          .put("min", min)
          .put("max", max)
          .put("mean", mean)
          .put("variance", squares / count);
    }

    private byte[] bytes() {
      return ByteBuffer.allocate(48)
          .putLong(count)
          .putDouble(sum)
          .putDouble(min)
          .putDouble(max)
          .putDouble(mean)
          .putDouble(squares)
          .array();
    }

    private static Statistics read(ByteBuffer bytes) {
      return new Statistics(
          bytes.getLong(),
          bytes.getDouble(),
          bytes.getDouble(),
          bytes.getDouble(),
          bytes.getDouble(),
          bytes.getDouble());
    }
  }

  private TheodoliteJobs() {}
}
