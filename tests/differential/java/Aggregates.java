import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** The aggregates of grouped streams and tables. */
final class Aggregates {
  private Aggregates() {}

  static Object ofStream(TopologyReader.Step step) {
    KGroupedStream<Object, Object> grouped = step.grouped(0);
    if (!step.has("window")) {
      return switch (step.text("how")) {
        case "count" -> grouped.count(step.named(), counts(step));
        case "reduce" -> grouped.reduce(reducer(step), step.named(), step.store());
        default -> grouped.aggregate(initial(step), adder(step, "f"), step.named(), step.store());
      };
    }
    JsonNode window = step.args.get("window");
    return switch (window.get("kind").asText()) {
      case "session" -> ofSessions(step, grouped.windowedBy(sessions(window)));
      case "sliding" -> ofWindows(step, grouped.windowedBy(sliding(window)));
      default -> ofWindows(step, grouped.windowedBy(times(window)));
    };
  }

  private static Object ofWindows(
      TopologyReader.Step step, TimeWindowedKStream<Object, Object> eager) {
    TimeWindowedKStream<Object, Object> windowed = eager.emitStrategy(emit(step));
    Materialized<Object, Object, WindowStore<Bytes, byte[]>> store = windowStore(step);
    return switch (step.text("how")) {
      case "count" -> windowed.count(step.named(), cast(store));
      case "reduce" -> windowed.reduce(reducer(step), step.named(), store);
      default -> windowed.aggregate(initial(step), adder(step, "f"), step.named(), store);
    };
  }

  private static Object ofSessions(
      TopologyReader.Step step, SessionWindowedKStream<Object, Object> eager) {
    SessionWindowedKStream<Object, Object> windowed = eager.emitStrategy(emit(step));
    Materialized<Object, Object, SessionStore<Bytes, byte[]>> store = sessionStore(step);
    return switch (step.text("how")) {
      case "count" -> windowed.count(step.named(), cast(store));
      case "reduce" -> windowed.reduce(reducer(step), step.named(), store);
      default ->
          windowed.aggregate(
              initial(step), adder(step, "f"), merger(step), step.named(), store);
    };
  }

  static Object ofCogroup(TopologyReader.Step step) {
    CogroupedKStream<Object, Object> cogrouped =
        step.grouped(0).cogroup(adder(step.args.get("adders").get(0).asText()));
    for (int number = 1; number < step.parents(); number++) {
      String adder = step.args.get("adders").get(number).asText();
      cogrouped = cogrouped.cogroup(step.grouped(number), adder(adder));
    }
    if (!step.has("window")) {
      return cogrouped.aggregate(initial(step), step.named(), step.store());
    }
    JsonNode window = step.args.get("window");
    return switch (window.get("kind").asText()) {
      case "session" ->
          cogrouped
              .windowedBy(sessions(window))
              .aggregate(initial(step), merger(step), step.named(), sessionStore(step));
      case "sliding" ->
          cogrouped
              .windowedBy(sliding(window))
              .aggregate(initial(step), step.named(), windowStore(step));
      default ->
          cogrouped
              .windowedBy(times(window))
              .aggregate(initial(step), step.named(), windowStore(step));
    };
  }

  static Object ofTable(TopologyReader.Step step) {
    KGroupedTable<Object, Object> grouped = step.groupedTable(0);
    return switch (step.text("how")) {
      case "count" -> grouped.count(step.named(), counts(step));
      case "reduce" -> {
        String subtractor = step.text("subtractor");
        Reducer<Object> subtract = (total, value) -> Functions.combine(subtractor, total, value);
        yield grouped.reduce(reducer(step), subtract, step.named(), step.store());
      }
      default ->
          grouped.aggregate(
              initial(step), adder(step, "f"), adder(step, "subtractor"), step.named(),
              step.store());
    };
  }

  private static TimeWindows times(JsonNode window) {
    return TimeWindows.ofSizeAndGrace(ms(window, "size_ms"), ms(window, "grace_ms"))
        .advanceBy(ms(window, "advance_ms"));
  }

  private static SlidingWindows sliding(JsonNode window) {
    return SlidingWindows.ofTimeDifferenceAndGrace(
        ms(window, "difference_ms"), ms(window, "grace_ms"));
  }

  private static SessionWindows sessions(JsonNode window) {
    return SessionWindows.ofInactivityGapAndGrace(ms(window, "gap_ms"), ms(window, "grace_ms"));
  }

  private static Duration ms(JsonNode window, String name) {
    return Duration.ofMillis(window.get(name).asLong());
  }

  private static EmitStrategy emit(TopologyReader.Step step) {
    return closes(step)
        ? EmitStrategy.onWindowClose()
        : EmitStrategy.onWindowUpdate();
  }

  private static Initializer<Object> initial(TopologyReader.Step step) {
    String name = step.text("initial");
    return () -> Functions.initial(name);
  }

  private static Aggregator<Object, Object, Object> adder(TopologyReader.Step step, String name) {
    return adder(step.text(name));
  }

  private static Aggregator<Object, Object, Object> adder(String function) {
    return (key, value, total) -> Functions.combine(function, total, value);
  }

  private static Reducer<Object> reducer(TopologyReader.Step step) {
    String function = step.text("f");
    return (total, value) -> Functions.combine(function, total, value);
  }

  private static Merger<Object, Object> merger(TopologyReader.Step step) {
    String function = step.text("merger");
    return (key, left, right) -> Functions.combine(function, left, right);
  }

  private static Materialized<Object, Object, WindowStore<Bytes, byte[]>> windowStore(
      TopologyReader.Step step) {
    Materialized<Object, Object, WindowStore<Bytes, byte[]>> store = materialized(step);
    // By default, a store keeps a window for its size and grace, and does not show it afterwards.
    // So emit-on-close misses most windows that a record closes which is later by more than that.
    if (closes(step)) {
      return store.withRetention(Duration.ofDays(365));
    }
    // By default, it also forgets sliding windows that a record of this very time still needs.
    JsonNode window = step.args.get("window");
    if (!window.get("kind").asText().equals("sliding")) {
      return store;
    }
    Duration needed = ms(window, "difference_ms").multipliedBy(2).plus(ms(window, "grace_ms"));
    return store.withRetention(needed.plusMillis(1));
  }

  private static Materialized<Object, Object, SessionStore<Bytes, byte[]>> sessionStore(
      TopologyReader.Step step) {
    Materialized<Object, Object, SessionStore<Bytes, byte[]>> store = materialized(step);
    // By default, a session that closes in the next millisecond is not found any more, and a record
    // within its gap begins another one.
    JsonNode window = step.args.get("window");
    return store.withRetention(ms(window, "gap_ms").plus(ms(window, "grace_ms")).plusMillis(1));
  }

  private static <S extends StateStore> Materialized<Object, Object, S> materialized(
      TopologyReader.Step step) {
    return Materialized.<Object, Object, S>as(step.name)
        .withKeySerde(step.typesOf(0).key())
        .withValueSerde(step.types.value())
        .withCachingDisabled();
  }

  private static boolean closes(TopologyReader.Step step) {
    return step.has("emit") && step.text("emit").equals("close");
  }

  private static Materialized<Object, Long, KeyValueStore<Bytes, byte[]>> counts(
      TopologyReader.Step step) {
    return cast(step.store());
  }

  /** Returns the store of a count: its values are longs, which only the type parameter says. */
  @SuppressWarnings("unchecked")
  private static <S extends StateStore>
      Materialized<Object, Long, S> cast(Materialized<Object, Object, S> store) {
    return (Materialized<Object, Long, S>) (Materialized<?, ?, ?>) store;
  }
}
