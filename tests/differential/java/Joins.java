import java.util.function.Function;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;

/** The joins of streams and tables; "kind" is inner, left or outer. */
final class Joins {
  private Joins() {}

  static Object streams(TopologyReader.Step step) {
    KStream<Object, Object> left = step.stream(0);
    KStream<Object, Object> right = step.stream(1);
    JoinWindows windows =
        JoinWindows.ofTimeDifferenceAndGrace(step.duration("before_ms"), step.duration("grace_ms"))
            .after(step.duration("after_ms"));
    StreamJoined<Object, Object, Object> joined =
        StreamJoined.with(
                step.typesOf(0).key(), step.typesOf(0).value(), step.typesOf(1).value())
            .withName(step.name)
            .withStoreName(step.name);
    return switch (step.text("kind")) {
      case "inner" -> left.join(right, joiner(step), windows, joined);
      case "left" -> left.leftJoin(right, joiner(step), windows, joined);
      default -> left.outerJoin(right, joiner(step), windows, joined);
    };
  }

  static Object streamWithTable(TopologyReader.Step step) {
    KStream<Object, Object> stream = step.stream(0);
    KTable<Object, Object> table = step.table(1);
    Joined<Object, Object, Object> joined =
        Joined.with(step.typesOf(0).key(), step.typesOf(0).value(), step.typesOf(1).value())
            .withName(step.name);
    if (step.has("grace_ms")) {
      joined = joined.withGracePeriod(step.duration("grace_ms"));
    }
    return step.text("kind").equals("inner")
        ? stream.join(table, joiner(step), joined)
        : stream.leftJoin(table, joiner(step), joined);
  }

  static Object streamWithGlobal(TopologyReader.Step step) {
    KStream<Object, Object> stream = step.stream(0);
    GlobalKTable<Object, Object> table = step.global(1);
    String f = step.text("key");
    KeyValueMapper<Object, Object, Object> key = (k, v) -> Functions.mapKey(f, k, v);
    return step.text("kind").equals("inner")
        ? stream.join(table, key, joiner(step), step.named())
        : stream.leftJoin(table, key, joiner(step), step.named());
  }

  static Object tables(TopologyReader.Step step) {
    KTable<Object, Object> left = step.table(0);
    KTable<Object, Object> right = step.table(1);
    if (step.isStored()) {
      return switch (step.text("kind")) {
        case "inner" -> left.join(right, joiner(step), step.named(), step.store());
        case "left" -> left.leftJoin(right, joiner(step), step.named(), step.store());
        default -> left.outerJoin(right, joiner(step), step.named(), step.store());
      };
    }
    return switch (step.text("kind")) {
      case "inner" -> left.join(right, joiner(step), step.named());
      case "left" -> left.leftJoin(right, joiner(step), step.named());
      default -> left.outerJoin(right, joiner(step), step.named());
    };
  }

  static Object byForeignKey(TopologyReader.Step step) {
    KTable<Object, Object> left = step.table(0);
    KTable<Object, Object> right = step.table(1);
    String f = step.text("foreign_key");
    Function<Object, Object> foreignKey = value -> Functions.mapKey(f, null, value);
    TableJoined<Object, Object> joined = TableJoined.as(step.name);
    return step.text("kind").equals("inner")
        ? left.join(right, foreignKey, joiner(step), joined)
        : left.leftJoin(right, foreignKey, joiner(step), joined);
  }

  private static ValueJoiner<Object, Object, Object> joiner(TopologyReader.Step step) {
    String function = step.text("f");
    return (left, right) -> Functions.combine(function, left, right);
  }
}
