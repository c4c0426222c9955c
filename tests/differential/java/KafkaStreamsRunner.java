import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.ExactLooks;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs topologies through the TopologyTestDriver of Kafka Streams.
 *
 * <p>Each line of the standard input is a JSON object: the steps of a topology, as {@link
 * TopologyReader} reads them, and the inputs of each run. The answer is one line: for each run, the
 * records of each output topic in order, as [key, value, timestamp], the error that ended the run, or
 * null, and the number of inputs before it. A windowed key is [key, start, end]. The argument is a
 * folder for state.
 */
public final class KafkaStreamsRunner {
  private static final ObjectMapper JSON = new ObjectMapper();

  private KafkaStreamsRunner() {}

  public static void main(String[] args) throws IOException {
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err); // for the log
    BufferedReader requests =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      answers.println(JSON.writeValueAsString(answer(JSON.readTree(line), args[0])));
    }
  }

  private static ArrayNode answer(JsonNode request, String stateFolder) {
    ArrayNode answers = JSON.createArrayNode();
    for (JsonNode inputs : request.get("runs")) {
      ObjectNode answer = answers.addObject();
      answer.putObject("outputs");
      answer.put("inputs", 0);
      try {
        run(request, inputs, settings(request, stateFolder), answer);
        answer.putNull("error");
      } catch (RuntimeException error) {
        answer.put("error", causes(error));
      }
    }
    return answers;
  }

  private static String causes(Throwable error) {
    StringBuilder text = new StringBuilder();
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      text.append(text.isEmpty() ? "" : ": ").append(cause);
    }
    return text.toString();
  }

  private static Properties settings(JsonNode request, String stateFolder) {
    boolean optimized = request.get("optimized").asBoolean();
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "differential");
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "unused:1");
    settings.put(StreamsConfig.STATE_DIR_CONFIG, stateFolder);
    settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, AnySerde.class);
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, AnySerde.class);
    settings.put(
        StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG,
        optimized ? StreamsConfig.OPTIMIZE : StreamsConfig.NO_OPTIMIZATION);
    settings.put(
        StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
        request.get("on_disk").asBoolean()
            ? BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class
            : BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
    // By default, results of closed windows and of unmatched records wait for a second of the wall
    // clock. They are to come with the record that closes the window.
    settings.put(
        StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
    settings.put(
        StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
    return settings;
  }

  private static void run(
      JsonNode request, JsonNode inputs, Properties settings, ObjectNode answer) {
    ObjectNode outputs = (ObjectNode) answer.get("outputs");
    TopologyReader reader = new TopologyReader(request.get("steps"), settings);
    try (TopologyTestDriver driver =
        new TopologyTestDriver(reader.build(), settings, Instant.EPOCH)) {
      ExactLooks.install(driver);
      Map<String, TestOutputTopic<Object, Object>> sinks = new HashMap<>();
      reader.sinks.forEach(
          (topic, types) ->
              sinks.put(
                  topic,
                  driver.createOutputTopic(
                      topic, types.key().deserializer(), types.value().deserializer())));
      try {
        feed(driver, reader, inputs, answer);
      } finally {
        sinks.forEach((topic, sink) -> read(sink, outputs.putArray(topic)));
      }
    }
  }

  private static void feed(
      TopologyTestDriver driver, TopologyReader reader, JsonNode inputs, ObjectNode answer) {
    Map<String, TestInputTopic<Object, Object>> topics = new HashMap<>();
    reader.sources.forEach(
        (topic, types) ->
            topics.put(
                topic,
                driver.createInputTopic(
                    topic, types.key().serializer(), types.value().serializer())));
    for (JsonNode input : inputs) {
      if (input.has("advance_ms")) {
        driver.advanceWallClockTime(Duration.ofMillis(input.get("advance_ms").asLong()));
      } else {
        Object key = plain(input.get("key"));
        Object value = plain(input.get("value"));
        topics.get(input.get("topic").asText()).pipeInput(key, value, input.get("ts").asLong());
      }
      answer.put("inputs", answer.get("inputs").asInt() + 1);
    }
  }

  private static void read(TestOutputTopic<Object, Object> sink, ArrayNode records) {
    for (TestRecord<Object, Object> record : sink.readRecordsToList()) {
      ArrayNode written = records.addArray();
      if (record.key() instanceof Windowed<?> windowed) {
        ArrayNode key = written.addArray();
        key.addPOJO(windowed.key());
        key.add(windowed.window().start()).add(windowed.window().end());
      } else {
        written.addPOJO(record.key());
      }
      written.addPOJO(record.value()).add(record.timestamp());
    }
  }

  private static Object plain(JsonNode node) {
    if (node.isNull()) {
      return null;
    }
    return node.isTextual() ? node.asText() : (Object) node.asLong();
  }
}
