import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/**
 * Queries of Nexmark over the topic of bids; benchmarks/nexmark/ has all of them.
 *
 * <p>Windows give updates, and their grace is longer than all events: behind a repartition, stream
 * time is the largest timestamp of all partitions, so with results on close, the rest of a partition
 * would be late once another one is ahead of it by the grace.
 */
final class NexmarkQueries {
  private static final BigDecimal EUROS = new BigDecimal("0.908");
  private static final Duration TEN_SECONDS = Duration.ofSeconds(10);
  private static final Duration GRACE = Duration.ofDays(1);

  static Topology topology(String query, String source, String sink) {
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, JsonNode> bids =
        builder.stream(source, Consumed.with(Serdes.String(), JsonValues.SERDE));
    KStream<String, JsonNode> results =
        switch (query) {
          case "q0" ->
              bids.mapValues(bid -> only(bid, "auction", "bidder", "price", "dateTime", "extra"));
          case "q1" -> bids.mapValues(NexmarkQueries::inEuros);
          case "q2" ->
              bids.filter((key, bid) -> bid.get("auction").asLong() % 123 == 0)
                  .mapValues(bid -> only(bid, "auction", "price"));
          case "q7" -> highestBids(bids);
          case "q11" -> sessions(bids);
          default -> throw new IllegalArgumentException("no such query: " + query);
        };
    results.to(sink, Produced.with(Serdes.String(), JsonValues.SERDE));
    return builder.build();
  }

  private static KStream<String, JsonNode> highestBids(KStream<String, JsonNode> bids) {
    return bids.mapValues(bid -> only(bid, "auction", "bidder", "price", "dateTime", "extra"))
        .groupBy((key, bid) -> "all", Grouped.with(Serdes.String(), JsonValues.SERDE))
        .windowedBy(TimeWindows.ofSizeAndGrace(TEN_SECONDS, GRACE))
        .reduce(NexmarkQueries::higher)
        .toStream()
        .map((window, bid) -> KeyValue.pair(Long.toString(window.window().start()), bid));
  }

  private static JsonNode higher(JsonNode first, JsonNode second) {
    int order = Long.compare(first.get("price").asLong(), second.get("price").asLong());
    if (order == 0) {
      order = Long.compare(second.get("dateTime").asLong(), first.get("dateTime").asLong());
    }
    return order < 0 ? second : first;
  }

  private static KStream<String, JsonNode> sessions(KStream<String, JsonNode> bids) {
    return bids.mapValues(bid -> only(bid, "bidder"))
        .groupBy((key, bid) -> bid.get("bidder").asText(), Grouped.with(Serdes.String(), JsonValues.SERDE))
        .windowedBy(SessionWindows.ofInactivityGapAndGrace(TEN_SECONDS, GRACE))
        .count(Materialized.with(Serdes.String(), Serdes.Long()))
        .toStream()
        .map((window, count) -> KeyValue.pair(window.toString(), session(window, count)));
  }

  private static JsonNode session(Windowed<String> window, Long count) {
    if (count == null) {
      return null;
    }
    return JsonValues.MAPPER.createObjectNode()
        .put("bidder", Long.valueOf(window.key()))
        .put("bid_count", count)
        .put("starttime", window.window().start())
        .put("endtime", window.window().end() + TEN_SECONDS.toMillis());
  }

  private static JsonNode only(JsonNode bid, String... names) {
    ObjectNode result = JsonValues.MAPPER.createObjectNode();
    for (String name : names) {
      result.set(name, bid.get(name));
    }
    return result;
  }

  private static JsonNode inEuros(JsonNode bid) {
    ObjectNode result = (ObjectNode) only(bid, "auction", "bidder", "price", "dateTime", "extra");
    return result.put("price", EUROS.multiply(bid.get("price").decimalValue()));
  }

  private NexmarkQueries() {}
}
