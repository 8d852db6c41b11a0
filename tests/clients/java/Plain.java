import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.MessageLite;
import example.baton.v1.InferenceGrpc;
import io.grpc.CallOptions;
import io.grpc.ChannelCredentials;
import io.grpc.ClientCall;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.TlsChannelCredentials;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** Makes calls by plain gRPC, as lines of JSON on standard input say, and tells in lines of JSON how they go: "headers", "first" (message) and "end". */
public final class Plain {
  private static final Gson GSON = new Gson();
  private static final Map<Integer, ClientCall<Object, Object>> CALLS = new ConcurrentHashMap<>();

  private static synchronized void tell(Map<String, Object> event) {
    System.out.println(GSON.toJson(event));
  }

  private static Map<String, String> plain(Metadata metadata) {
    Map<String, String> flat = new HashMap<>();
    for (String key : metadata.keys()) {
      flat.put(
          key,
          key.endsWith("-bin")
              ? Base64.getEncoder().encodeToString(metadata.get(Metadata.Key.of(key, Metadata.BINARY_BYTE_MARSHALLER)))
              : metadata.get(Metadata.Key.of(key, Metadata.ASCII_STRING_MARSHALLER)));
    }
    return flat;
  }

  private static final class Listener extends ClientCall.Listener<Object> {
    private final JsonObject asked;
    private final int id;
    private final List<String> kept = new ArrayList<>();
    private Map<String, String> headers = Map.of();
    private String last = "";
    private int count;

    Listener(JsonObject asked) {
      this.asked = asked;
      id = asked.get("id").getAsInt();
    }

    @Override
    public void onHeaders(Metadata metadata) {
      headers = plain(metadata);
      tell(Map.of("id", id, "event", "headers", "headers", headers));
    }

    @Override
    public void onMessage(Object message) {
      last = Base64.getEncoder().encodeToString(((MessageLite) message).toByteArray());
      if (is(asked, "keep")) {
        kept.add(last);
      }
      if (++count == 1) {
        tell(Map.of("id", id, "event", "first"));
      }
      if (!is(asked, "stall")) {
        CALLS.get(id).request(1);
      }
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      String message = status.getDescription() == null ? "" : status.getDescription();
      Map<String, Object> said = new HashMap<>(Map.of("id", id, "event", "end", "code", status.getCode().value(), "message", message, "count", count));
      said.putAll(Map.of("headers", headers, "trailers", plain(trailers), "last", last, "kept", kept));
      tell(said);
    }
  }

  private static boolean is(JsonObject asked, String key) {
    return asked.has(key) && asked.get(key).getAsBoolean();
  }

  private static String text(JsonObject asked, String key) {
    return asked.has(key) ? asked.get(key).getAsString() : "";
  }

  @SuppressWarnings("unchecked")
  private static void call(ManagedChannel channel, JsonObject asked) throws Exception {
    MethodDescriptor<Object, Object> method = null;
    for (MethodDescriptor<?, ?> one : InferenceGrpc.getServiceDescriptor().getMethods()) {
      if (one.getFullMethodName().equals(text(asked, "method"))) {
        method = (MethodDescriptor<Object, Object>) one;
      }
    }
    CallOptions options = CallOptions.DEFAULT;
    if (asked.has("deadline_ns")) {
      options = options.withDeadlineAfter(asked.get("deadline_ns").getAsLong(), TimeUnit.NANOSECONDS);
    }
    if (is(asked, "gzip")) {
      options = options.withCompression("gzip");
    }
    if (is(asked, "wait")) {
      options = options.withWaitForReady();
    }
    Metadata metadata = new Metadata();
    if (asked.has("metadata")) {
      for (JsonElement pair : asked.getAsJsonArray("metadata")) {
        Metadata.Key<String> key = Metadata.Key.of(pair.getAsJsonArray().get(0).getAsString(), Metadata.ASCII_STRING_MARSHALLER);
        metadata.put(key, pair.getAsJsonArray().get(1).getAsString());
      }
    }
    ClientCall<Object, Object> call = channel.newCall(method, options);
    CALLS.put(asked.get("id").getAsInt(), call);
    call.start(new Listener(asked), metadata);
    call.request(1);
    if (is(asked, "gzip")) {
      call.setMessageCompression(true);
    }
    call.sendMessage(method.parseRequest(new ByteArrayInputStream(Base64.getDecoder().decode(text(asked, "request")))));
    call.halfClose();
  }

  @SuppressWarnings("unchecked")
  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    JsonObject settings = JsonParser.parseString(lines.readLine()).getAsJsonObject();
    ChannelCredentials credentials = InsecureChannelCredentials.create();
    if (!text(settings, "ca").isEmpty()) {
      TlsChannelCredentials.Builder tls = TlsChannelCredentials.newBuilder().trustManager(new File(text(settings, "ca")));
      if (!text(settings, "cert").isEmpty()) {
        tls.keyManager(new File(text(settings, "cert")), new File(text(settings, "key")));
      }
      credentials = tls.build();
    }
    ManagedChannelBuilder<?> builder = Grpc.newChannelBuilder(text(settings, "address"), credentials);
    if (settings.has("max_receive")) {
      builder.maxInboundMessageSize(settings.get("max_receive").getAsInt());
    }
    if (settings.has("keepalive_seconds")) {
      builder.keepAliveTime(settings.get("keepalive_seconds").getAsLong(), TimeUnit.SECONDS).keepAliveWithoutCalls(true);
    }
    if (settings.has("service_config")) {
      builder.defaultServiceConfig((Map<String, Object>) GSON.fromJson(text(settings, "service_config"), Map.class)).enableRetry();
    }
    ManagedChannel channel = builder.build();
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonObject asked = JsonParser.parseString(line).getAsJsonObject();
      switch (text(asked, "op")) {
        case "call" -> call(channel, asked);
        case "cancel" -> CALLS.get(asked.get("id").getAsInt()).cancel("by the test", null);
        case "read" -> CALLS.get(asked.get("id").getAsInt()).request(Integer.MAX_VALUE);
        default -> channel.shutdownNow();
      }
    }
    System.exit(0);
  }
}
