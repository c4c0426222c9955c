import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Builds a topology of Kafka Streams from its steps in JSON; topologies.py says what they are. */
final class TopologyReader {
  /** The topics that the topology reads, and what their records are. */
  final Map<String, Types> sources = new LinkedHashMap<>();

  /** The topics that the topology writes. */
  final Map<String, Types> sinks = new LinkedHashMap<>();

  private final StreamsBuilder builder;
  private final Map<String, Object> built = new HashMap<>();
  private final Map<String, Types> types = new HashMap<>();
  private final JsonNode steps;
  private final Properties settings;

  TopologyReader(JsonNode steps, Properties settings) {
    this.steps = steps;
    this.settings = settings;
    builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(settings)));
  }

  Topology build() {
    for (JsonNode node : steps) {
      Step step = new Step(node);
      types.put(step.name, step.types);
      built.put(step.name, add(step));
    }
    return builder.build(settings);
  }

  /** A step, with what its parents became. */
  final class Step {
    final String name;
    final String op;
    final JsonNode args;
    final Types types;
    private final JsonNode parents;

    Step(JsonNode node) {
      name = node.get("name").asText();
      op = node.get("op").asText();
      args = node.get("args");
      parents = node.get("from");
      types = Types.of(node);
    }

    String text(String argument) {
      return args.get(argument).asText();
    }

    Duration duration(String argument) {
      return Duration.ofMillis(args.get(argument).asLong());
    }

    boolean has(String argument) {
      return args.hasNonNull(argument);
    }

    boolean isStored() {
      return has("stored") && args.get("stored").asBoolean();
    }

    Object parent(int number) {
      return built.get(parents.get(number).asText());
    }

    Types typesOf(int number) {
      return TopologyReader.this.types.get(parents.get(number).asText());
    }

    @SuppressWarnings("unchecked")
    KStream<Object, Object> stream(int number) {
      return (KStream<Object, Object>) parent(number);
    }

    @SuppressWarnings("unchecked")
    KTable<Object, Object> table(int number) {
      return (KTable<Object, Object>) parent(number);
    }

    @SuppressWarnings("unchecked")
    GlobalKTable<Object, Object> global(int number) {
      return (GlobalKTable<Object, Object>) parent(number);
    }

    @SuppressWarnings("unchecked")
    KGroupedStream<Object, Object> grouped(int number) {
      return (KGroupedStream<Object, Object>) parent(number);
    }

    @SuppressWarnings("unchecked")
    KGroupedTable<Object, Object> groupedTable(int number) {
      return (KGroupedTable<Object, Object>) parent(number);
    }

    int parents() {
      return parents.size();
    }

    Named named() {
      return Named.as(name);
    }

    Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> store() {
      return Materialized.<Object, Object, KeyValueStore<Bytes, byte[]>>as(name)
          .withKeySerde(types.key())
          .withValueSerde(types.value())
          .withCachingDisabled();
    }
  }

  private Object add(Step step) {
    return switch (step.op) {
      case "stream", "table", "global_table" -> source(step);
      case "filter", "filter_not", "map_values", "to_stream", "suppress", "table_group_by" ->
          step.parent(0) instanceof KTable ? ofTable(step) : ofStream(step);
      case "aggregate" -> Aggregates.ofStream(step);
      case "cogroup" -> Aggregates.ofCogroup(step);
      case "table_aggregate" -> Aggregates.ofTable(step);
      case "stream_join" -> Joins.streams(step);
      case "table_lookup" -> Joins.streamWithTable(step);
      case "global_lookup" -> Joins.streamWithGlobal(step);
      case "table_join" -> Joins.tables(step);
      case "foreign_key_join" -> Joins.byForeignKey(step);
      default -> ofStream(step);
    };
  }

  private Object source(Step step) {
    List<String> topics = new ArrayList<>();
    step.args.get("topics").forEach(topic -> topics.add(topic.asText()));
    topics.forEach(topic -> sources.put(topic, step.types));
    Consumed<Object, Object> consumed =
        Consumed.with(step.types.key(), step.types.value()).withName(step.name + "-source");
    if (step.op.equals("stream")) {
      return builder.stream(topics, consumed);
    }
    if (step.op.equals("global_table")) {
      return builder.globalTable(topics.get(0), consumed, step.store());
    }
    if (!step.has("history_ms")) {
      return builder.table(topics.get(0), consumed, step.store());
    }
    Duration history = step.duration("history_ms");
    Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> versioned =
        Materialized.as(Stores.persistentVersionedKeyValueStore(step.name, history));
    return builder.table(
        topics.get(0),
        consumed,
        versioned.withKeySerde(step.types.key()).withValueSerde(step.types.value()));
  }

  private Object ofStream(Step step) {
    KStream<Object, Object> stream = step.parent(0) instanceof KStream ? step.stream(0) : null;
    Named name = step.named();
    String f = step.has("f") ? step.text("f") : "";
    return switch (step.op) {
      case "filter" -> stream.filter((k, v) -> Functions.test(f, k, v), name);
      case "filter_not" -> stream.filterNot((k, v) -> Functions.test(f, k, v), name);
      case "map" -> stream.map((k, v) -> Functions.map(f, k, v), name);
      case "map_values" -> stream.mapValues(v -> Functions.mapValue(f, v), name);
      case "flat_map" -> stream.flatMap((k, v) -> Functions.flatMap(f, k, v), name);
      case "flat_map_values" -> stream.flatMapValues(v -> Functions.flatMapValue(f, v), name);
      case "select_key" -> stream.selectKey((k, v) -> Functions.mapKey(f, k, v), name);
      case "peek" -> stream.peek((k, v) -> Functions.text(v), name);
      case "merge" -> stream.merge(step.stream(1), name);
      case "split" -> split(step);
      case "branch" -> ((Map<?, ?>) step.parent(0)).get(step.text("branch"));
      case "repartition" ->
          stream.repartition(
              Repartitioned.with(step.types.key(), step.types.value()).withName(step.name));
      case "to_table" -> stream.toTable(name, step.store());
      case "group_by_key" ->
          stream.groupByKey(Grouped.with(step.name, step.types.key(), step.types.value()));
      case "group_by" ->
          stream.groupBy(
              (k, v) -> Functions.mapKey(f, k, v),
              Grouped.with(step.name, step.types.key(), step.types.value()));
      case "to" -> write(step, stream);
      default -> throw new IllegalArgumentException("no such step: " + step.op);
    };
  }

  /** Returns the streams by the names of their branches. */
  private static Map<String, KStream<Object, Object>> split(Step step) {
    String prefix = step.name + "-";
    BranchedKStream<Object, Object> branched = step.stream(0).split(Named.as(prefix));
    for (JsonNode branch : step.args.get("branches")) {
      String f = branch.get("f").asText();
      branched =
          branched.branch(
              (k, v) -> Functions.test(f, k, v), Branched.as(branch.get("name").asText()));
    }
    Map<String, KStream<Object, Object>> streams =
        step.has("default")
            ? branched.defaultBranch(Branched.as(step.text("default")))
            : branched.noDefaultBranch();
    Map<String, KStream<Object, Object>> byName = new HashMap<>();
    streams.forEach((name, stream) -> byName.put(name.substring(prefix.length()), stream));
    return byName;
  }

  private Object write(Step step, KStream<Object, Object> stream) {
    Types types = step.typesOf(0);
    sinks.put(step.text("topic"), types);
    stream.to(
        step.text("topic"), Produced.with(types.key(), types.value()).withName(step.name));
    return stream;
  }

  private Object ofTable(Step step) {
    KTable<Object, Object> table = step.table(0);
    Named name = step.named();
    String f = step.has("f") ? step.text("f") : "";
    return switch (step.op) {
      case "filter" ->
          step.isStored()
              ? table.filter((k, v) -> Functions.test(f, k, v), name, step.store())
              : table.filter((k, v) -> Functions.test(f, k, v), name);
      case "filter_not" ->
          step.isStored()
              ? table.filterNot((k, v) -> Functions.test(f, k, v), name, step.store())
              : table.filterNot((k, v) -> Functions.test(f, k, v), name);
      case "map_values" ->
          step.isStored()
              ? table.mapValues(v -> Functions.mapValue(f, v), name, step.store())
              : table.mapValues(v -> Functions.mapValue(f, v), name);
      case "to_stream" -> table.toStream(name);
      case "suppress" -> table.suppress(suppressed(step));
      case "table_group_by" ->
          table.groupBy(
              (k, v) -> Functions.map(f, k, v),
              Grouped.with(step.name, step.types.key(), step.types.value()));
      default -> throw new IllegalArgumentException("no such step of a table: " + step.op);
    };
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static Suppressed<Object> suppressed(Step step) {
    if (!step.has("wait_ms")) {
      Suppressed.StrictBufferConfig buffer =
          step.has("max_records")
              ? Suppressed.BufferConfig.maxRecords(step.args.get("max_records").asLong())
                  .shutDownWhenFull()
              : Suppressed.BufferConfig.unbounded();
      // Declared for tables with windowed keys; those of a step are only known when it runs.
      return ((Suppressed) Suppressed.untilWindowCloses(buffer)).withName(step.name);
    }
    Suppressed.BufferConfig buffer = Suppressed.BufferConfig.unbounded();
    if (step.has("max_records")) {
      Suppressed.EagerBufferConfig bounded =
          Suppressed.BufferConfig.maxRecords(step.args.get("max_records").asLong());
      boolean emits = step.text("when_full").equals("emit_early");
      buffer = emits ? bounded.emitEarlyWhenFull() : bounded.shutDownWhenFull();
    }
    return Suppressed.untilTimeLimit(step.duration("wait_ms"), buffer).withName(step.name);
  }
}
