import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.math.BigDecimal;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Some queries of Nexmark over the topic of bids; benchmarks/nexmark/ has all of them.
 *
 * <p>Windows follow the largest timestamp behind a repartition, so the grace period must cover how
 * far one partition is read ahead of the other. The closing events come an hour later.
 */
final class NexmarkQueries {
  private static final Duration TEN_SECONDS = Duration.ofSeconds(10);
  private static final Duration GRACE = Duration.ofMinutes(30);
  private static final BigDecimal EUROS = new BigDecimal("0.908");
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Serde<JsonNode> VALUES =
      Serdes.serdeFrom((topic, value) -> write(value), (topic, bytes) -> read(bytes));

  static Topology topology(String query, String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, JsonNode> bids =
        builder.stream(source, Consumed.with(Serdes.String(), VALUES));
    KStream<String, JsonNode> results =
        switch (query) {
          case "q0" ->
              bids.mapValues(bid -> only(bid, "auction", "bidder", "price", "dateTime", "extra"));
          case "q1" -> bids.mapValues(NexmarkQueries::inEuros);
          case "q2" ->
              bids.filter((key, bid) -> bid.get("auction").asLong() % 123 == 0)
                  .mapValues(bid -> only(bid, "auction", "price"));
          case "q7" -> highest(bids);
          case "q11" -> sessions(bids);
          default -> throw new IllegalArgumentException("no such query: " + query);
        };
    results.to(sink, Produced.with(Serdes.String(), VALUES));
    return builder.build();
  }

  private static KStream<String, JsonNode> highest(KStream<String, JsonNode> bids) {
    return bids.groupBy((auction, bid) -> "all", Grouped.with(Serdes.String(), VALUES))
        .windowedBy(TimeWindows.ofSizeAndGrace(TEN_SECONDS, GRACE))
        .emitStrategy(EmitStrategy.onWindowClose())
        .reduce(
            NexmarkQueries::higher,
            Materialized.<String, JsonNode, WindowStore<Bytes, byte[]>>as("Highest")
                .withKeySerde(Serdes.String())
                .withValueSerde(VALUES))
        .toStream()
        .map(
            (window, bid) ->
                KeyValue.pair(
                    window.key(), only(bid, "auction", "bidder", "price", "dateTime", "extra")));
  }

  private static JsonNode higher(JsonNode best, JsonNode bid) {
    int order = Long.compare(bid.get("price").asLong(), best.get("price").asLong());
    boolean isEarlier = bid.get("dateTime").asLong() < best.get("dateTime").asLong();
    return order > 0 || order == 0 && isEarlier ? bid : best;
  }

  private static KStream<String, JsonNode> sessions(KStream<String, JsonNode> bids) {
    return bids.groupBy(
            (auction, bid) -> bid.get("bidder").asText(), Grouped.with(Serdes.String(), VALUES))
        .windowedBy(SessionWindows.ofInactivityGapAndGrace(TEN_SECONDS, GRACE))
        .emitStrategy(EmitStrategy.onWindowClose())
        .count(
            Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("Counts")
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.Long()))
        .toStream()
        .filter((session, count) -> count != null)
        .map(
            (session, count) ->
                KeyValue.pair(
                    session.key(),
                    JSON.createObjectNode()
                        .put("bidder", Long.parseLong(session.key()))
                        .put("bid_count", count)
                        .put("starttime", session.window().start())
                        .put("endtime", session.window().end() + TEN_SECONDS.toMillis())));
  }

  private static JsonNode only(JsonNode bid, String... names) {
    ObjectNode result = JSON.createObjectNode();
    for (String name : names) {
      result.set(name, bid.get(name));
    }
    return result;
  }

  private static JsonNode inEuros(JsonNode bid) {
    ObjectNode result = (ObjectNode) only(bid, "auction", "bidder", "price", "dateTime", "extra");
    return result.put("price", EUROS.multiply(bid.get("price").decimalValue()));
  }

  private static byte[] write(JsonNode value) {
    try {
      return value == null ? null : JSON.writeValueAsBytes(value);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException(error);
    }
  }

  private static JsonNode read(byte[] bytes) {
    try {
      return bytes == null ? null : JSON.readTree(bytes);
    } catch (IOException error) {
      throw new IllegalArgumentException(error);
    }
  }

  private NexmarkQueries() {}
}
