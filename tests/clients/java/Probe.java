import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import example.baton.client.Answer;
import example.baton.client.AnswerStream;
import example.baton.client.BatonClient;
import example.baton.client.BatonException;
import example.baton.client.Part;
import example.baton.v1.ChatRequest;
import java.io.FileInputStream;
import java.io.InputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Runs one request by the client, as its argument in JSON says, and prints in JSON what came of it. clients_test.py builds it beside the client. */
public final class Probe {
  private static List<Object> of(Part.ToolCall call) {
    return List.of(call.id(), call.name(), call.argumentsJson(), call.complete());
  }

  private static Map<String, Object> of(Answer answer) {
    return Map.of(
        "text", answer.text(),
        "thinking", answer.thinking(),
        "calls", answer.calls().stream().map(Probe::of).toList(),
        "reason", answer.reason().name().replace("FINISH_REASON_", ""),
        "tokens", answer.finished().getUsage().getCompletionTokens(),
        "request_id", answer.started().getRequestId());
  }

  private static Map<String, Object> of(BatonException error) {
    Map<String, Object> said = new HashMap<>();
    said.put("code", error.code().value());
    said.put("message", error.details());
    said.put("reason", error.reason());
    said.put("metadata", error.metadata());
    said.put("field", error.field());
    said.put("final", error.isFinal());
    said.put("request_id", error.requestId());
    error.retryAfter().ifPresent(wait -> said.put("retry_after", wait.toNanos() / 1e9));
    return said;
  }

  public static void main(String[] arguments) throws Exception {
    JsonObject asked = JsonParser.parseString(arguments[0]).getAsJsonObject();
    ChatRequest request = ChatRequest.parseFrom(Base64.getDecoder().decode(asked.get("request").getAsString()));
    Duration timeout = Duration.ofSeconds(asked.get("timeout").getAsLong());
    int leave = asked.get("leave").getAsInt();
    BatonClient.Builder builder =
        BatonClient.builder(asked.get("address").getAsString()).key(asked.get("key").getAsString()).attempts(asked.get("attempts").getAsInt());
    String authority = asked.get("ca").getAsString();
    if (!authority.isEmpty()) {
      try (InputStream roots = new FileInputStream(authority)) {
        builder.tls(roots);
      }
    }
    Map<String, Object> said = new HashMap<>();
    List<Object> parts = new ArrayList<>();
    try (BatonClient client = builder.build()) {
      if (asked.get("op").getAsString().equals("complete")) {
        said.put("answer", of(client.complete(request, timeout)));
      } else {
        said.put("parts", parts);
        try (AnswerStream stream = client.stream(request, timeout)) {
          for (Part part : stream) {
            if (part instanceof Part.Text text) {
              parts.add(List.of("text", text.text()));
            } else if (part instanceof Part.Thinking thinking) {
              parts.add(List.of("thinking", thinking.text()));
            } else if (part instanceof Part.ToolCall call) {
              List<Object> named = new ArrayList<>(List.of("call"));
              named.addAll(of(call));
              parts.add(named);
            } else if (part instanceof Answer answer) {
              said.put("answer", of(answer));
            }
            if (leave > 0 && parts.size() == leave) {
              break;
            }
          }
        }
        if (leave > 0) {
          // The connection stays, so that only the call can tell that the loop was left.
          System.out.println(new Gson().toJson(said));
          System.in.read();
        }
      }
    } catch (BatonException error) {
      said.put("error", of(error));
    }
    System.out.println(new Gson().toJson(said));
  }
}
