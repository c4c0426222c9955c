import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** Values of records that are JSON. */
final class JsonValues {
  static final ObjectMapper MAPPER = new ObjectMapper();
  static final Serde<JsonNode> SERDE =
      Serdes.serdeFrom((topic, value) -> write(value), (topic, bytes) -> read(bytes));

  private static byte[] write(JsonNode value) {
    try {
      return value == null ? null : MAPPER.writeValueAsBytes(value);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException(error);
    }
  }

  private static JsonNode read(byte[] bytes) {
    try {
      return bytes == null ? null : MAPPER.readTree(bytes);
    } catch (IOException error) {
      throw new IllegalArgumentException(error);
    }
  }

  private JsonValues() {}
}
