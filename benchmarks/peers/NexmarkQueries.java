import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/**
 * The queries of Nexmark that keep no state, over the topic of bids; benchmarks/nexmark/ has all of
 * them.
 *
 * <p>Windows are left out: behind a repartition, stream time is the largest timestamp of all
 * partitions. When the closing events of one have come, the rest of the other is dropped as late.
 */
final class NexmarkQueries {
  private static final BigDecimal EUROS = new BigDecimal("0.908");

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
          default -> throw new IllegalArgumentException("no such query: " + query);
        };
    results.to(sink, Produced.with(Serdes.String(), JsonValues.SERDE));
    return builder.build();
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
