import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.List;
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
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/** The use cases of Theodolite, as those of https://github.com/cau-se/theodolite, with JSON. */
final class TheodoliteJobs {
  private static final ZoneId ZONE = ZoneId.of("Europe/Paris");
  private static final String CONFIGURATION = "configuration";
  private static final String FEEDBACK = "feedback";
  private static final Duration FIVE_SECONDS = Duration.ofSeconds(5);
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
      case "uc4" -> hierarchy(builder, records, sink);
      default -> throw new IllegalArgumentException("no such use case: " + useCase);
    }
    return builder.build();
  }

  private static void hierarchy(
      StreamsBuilder builder, KStream<String, JsonNode> sensors, String sink) {
    Consumed<String, JsonNode> consumed = Consumed.with(Serdes.String(), VALUES);
    Grouped<String, JsonNode> grouped = Grouped.with(Serdes.String(), VALUES);
    KTable<String, JsonNode> parents = builder.table(CONFIGURATION, consumed);
    KTable<String, JsonNode> sums =
        sensors
            .merge(builder.stream(FEEDBACK, consumed))
            .toTable(Materialized.with(Serdes.String(), VALUES))
            .join(parents, TheodoliteJobs::withParents)
            .toStream()
            .flatMap(TheodoliteJobs::forEachParent)
            .groupByKey(grouped)
            .windowedBy(TimeWindows.ofSizeWithNoGrace(FIVE_SECONDS))
            .reduce(
                (before, record) -> time(record) >= time(before) ? record : before,
                Materialized.with(Serdes.String(), VALUES))
            .groupBy((key, record) -> KeyValue.pair(parentAndWindow(key), record), grouped)
            .aggregate(
                () -> sum(0, 0, 0),
                (key, record, found) -> changed(found, record, 1),
                (key, record, found) -> changed(found, record, -1),
                Materialized.with(Serdes.String(), VALUES));
    sums.toStream()
        .map((key, found) -> KeyValue.pair(key.split(";")[0], asRecord(key, found)))
        .to(FEEDBACK, Produced.with(Serdes.String(), VALUES));
    sums.suppress(Suppressed.untilTimeLimit(FIVE_SECONDS, Suppressed.BufferConfig.unbounded()))
        .toStream()
        .map((key, found) -> KeyValue.pair(key.split(";")[0], asSum(key, found)))
        .to(sink, Produced.with(Serdes.String(), VALUES));
  }

  private static JsonNode withParents(JsonNode record, JsonNode found) {
    ObjectNode both = record.deepCopy();
    return both.set("parents", found.get("parents"));
  }

  private static List<KeyValue<String, JsonNode>> forEachParent(String name, JsonNode record) {
    ObjectNode kept = JsonValues.MAPPER.createObjectNode();
    kept.put("timestamp", time(record)).put("valueInW", watts(record));
    List<KeyValue<String, JsonNode>> found = new ArrayList<>();
    record
        .get("parents")
        .forEach(parent -> found.add(KeyValue.pair(name + ";" + parent.asText(), kept)));
    return found;
  }

  private static String parentAndWindow(Windowed<String> key) {
    return key.key().split(";")[1] + ";" + key.window().start();
  }

  private static JsonNode sum(long count, double sum, long timestamp) {
    return JsonValues.MAPPER
        .createObjectNode()
        .put("count", count)
        .put("sum", sum)
        .put("timestamp", timestamp);
  }

  private static JsonNode changed(JsonNode found, JsonNode record, int sign) {
    return sum(
        found.get("count").asLong() + sign,
        found.get("sum").asDouble() + sign * watts(record),
        Math.max(time(found), time(record)));
  }

  private static JsonNode asRecord(String key, JsonNode found) {
    return JsonValues.MAPPER
        .createObjectNode()
        .put("identifier", key.split(";")[0])
        .put("timestamp", time(found))
        .put("valueInW", found.get("sum").asDouble());
  }

  private static JsonNode asSum(String key, JsonNode found) {
    String[] parts = key.split(";");
    return JsonValues.MAPPER
        .createObjectNode()
        .put("sensor", parts[0])
        .put("start", Long.parseLong(parts[1]))
        .put("count", found.get("count").asLong())
        .put("sum", found.get("sum").asDouble());
  }

  private static long time(JsonNode record) {
    return record.get("timestamp").asLong();
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
