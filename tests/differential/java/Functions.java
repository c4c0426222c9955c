import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;

/**
 * The functions that topologies name; functions.py has the same ones for our side.
 *
 * <p>Values are strings or whole numbers. Each function takes either of them, and null.
 */
final class Functions {
  private static final int LONGEST_TEXT = 40;
  private static final long LARGEST_SUM = 12;

  private Functions() {}

  /** Returns a number for any value: itself, the length of a string, 0 for null. */
  static long number(Object value) {
    if (value instanceof Long number) {
      return number;
    }
    return value == null ? 0 : text(value).length();
  }

  /** Returns a string for any key or value. */
  static String text(Object value) {
    if (value instanceof Windowed<?> windowed) {
      String start = Long.toString(windowed.window().start());
      return text(windowed.key()) + "@" + start + "-" + windowed.window().end();
    }
    return value == null ? "-" : value.toString();
  }

  /** Returns the end of a text: texts that grow with each record would fill the memory. */
  static String cut(String text) {
    return text.substring(Math.max(0, text.length() - LONGEST_TEXT));
  }

  static String letter(Object value) {
    return "abc".substring((int) Math.floorMod(number(value), 3L)).substring(0, 1);
  }

  static boolean test(String name, Object key, Object value) {
    return switch (name) {
      case "even_value" -> Math.floorMod(number(value), 2L) == 0;
      case "has_value" -> value != null;
      case "has_key" -> key != null;
      case "early_key" -> text(key).compareTo("b") < 0;
      case "large_value" -> number(value) > 2;
      default -> throw unknown(name);
    };
  }

  static Object mapKey(String name, Object key, Object value) {
    return switch (name) {
      case "letter" -> letter(value);
      case "letter_or_null" -> number(value) == 2 ? null : letter(value);
      case "key_text" -> text(key);
      case "key_number" -> Math.floorMod(number(value), 3L);
      case "inner_key" -> key instanceof Windowed<?> windowed ? windowed.key() : key;
      default -> throw unknown(name);
    };
  }

  static Object mapValue(String name, Object value) {
    return switch (name) {
      case "increment" -> number(value) + 1;
      case "number" -> number(value);
      case "text" -> text(value);
      case "decorate" -> cut("<" + text(value) + ">");
      case "null_if_odd" -> Math.floorMod(number(value), 2L) == 1 ? null : value;
      default -> throw unknown(name);
    };
  }

  static KeyValue<Object, Object> map(String name, Object key, Object value) {
    return switch (name) {
      case "letter_and_text" -> KeyValue.pair(letter(value), cut(text(key) + text(value)));
      case "letter_and_number" -> KeyValue.pair(letter(value), number(value) + text(key).length());
      case "letter_or_nothing" ->
          number(value) == 2 ? null : KeyValue.pair(letter(value), cut(text(key) + text(value)));
      default -> throw unknown(name);
    };
  }

  static List<Object> flatMapValue(String name, Object value) {
    List<Object> values = new ArrayList<>();
    switch (name) {
      case "twice" -> {
        values.add(value);
        values.add(value);
      }
      case "letters" -> text(value).chars().forEach(c -> values.add(Character.toString(c)));
      case "countdown" -> {
        for (long left = Math.floorMod(number(value), 3L); left > 0; left--) {
          values.add(left);
        }
      }
      default -> throw unknown(name);
    }
    return values;
  }

  static List<KeyValue<Object, Object>> flatMap(String name, Object key, Object value) {
    List<KeyValue<Object, Object>> pairs = new ArrayList<>();
    switch (name) {
      case "both_letters" -> {
        pairs.add(KeyValue.pair(letter(value), cut(text(key) + text(value))));
        pairs.add(KeyValue.pair(letter(text(key)), text(value)));
      }
      case "numbers" -> {
        for (long left = Math.floorMod(number(value), 3L); left > 0; left--) {
          pairs.add(KeyValue.pair(letter(left), left));
        }
      }
      default -> throw unknown(name);
    }
    return pairs;
  }

  /** Combines two values: the adders, reducers, mergers, subtractors and joiners. */
  static Object combine(String name, Object left, Object right) {
    return switch (name) {
      case "sum" -> number(left) + number(right);
      case "difference" -> number(left) - number(right);
      case "sum_or_null" -> {
        long sum = number(left) + number(right);
        yield sum > LARGEST_SUM ? null : sum;
      }
      case "concat" -> cut(text(left) + text(right));
      case "remove" -> cut(text(left) + "~" + text(right));
      case "pair" -> cut("(" + text(left) + "," + text(right) + ")");
      case "latest" -> right;
      default -> throw unknown(name);
    };
  }

  static Object initial(String name) {
    return switch (name) {
      case "zero" -> 0L;
      case "empty" -> "";
      default -> throw unknown(name);
    };
  }

  private static IllegalArgumentException unknown(String name) {
    return new IllegalArgumentException("no such function: " + name);
  }
}
