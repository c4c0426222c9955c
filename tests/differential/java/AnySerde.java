import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serializer;

/**
 * A serde of strings and longs, whose bytes say which it is.
 *
 * <p>For the few places where Kafka Streams has forgotten a table's serde and offers no argument to
 * give it, such as a foreign-key join after mapValues.
 */
public final class AnySerde implements Serde<Object> {
  @Override
  public Serializer<Object> serializer() {
    return (topic, data) -> {
      if (data == null) {
        return null;
      }
      String tagged = (data instanceof Long ? "L" : "S") + data;
      return tagged.getBytes(StandardCharsets.UTF_8);
    };
  }

  @Override
  public Deserializer<Object> deserializer() {
    return (topic, data) -> {
      if (data == null) {
        return null;
      }
      String text = new String(data, 1, data.length - 1, StandardCharsets.UTF_8);
      return data[0] == 'L' ? Long.valueOf(text) : (Object) text;
    };
  }
}
