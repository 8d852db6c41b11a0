package example.baton.client;

import example.baton.v1.ChatRequest;
import example.baton.v1.ChatUnaryRequest;
import example.baton.v1.InferenceGrpc;
import example.baton.v1.InferenceGrpc.InferenceBlockingStub;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptor;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.MetadataUtils;
import java.io.IOException;
import java.io.InputStream;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/** Any thread may use it. Its calls block; the stub has the methods that it does not wrap. */
public final class BatonClient implements AutoCloseable {
  private static final int MAX_ANSWER_BYTES = 16 << 20;
  private static final int SEED_BITS = 52; // a double holds it
  private static final SecureRandom RANDOM = new SecureRandom();
  private final ManagedChannel channel;
  private final InferenceBlockingStub stub;
  private final int attempts;

  /** Connects in plain text, without a key, unless it is told otherwise. */
  public static final class Builder {
    private final String target;
    private final List<ClientInterceptor> interceptors = new ArrayList<>();
    private ChannelCredentials credentials = InsecureChannelCredentials.create();
    private String key = "";
    private int attempts = 4;

    private Builder(String target) {
      this.target = target;
    }

    /** The tenant's API key. */
    public Builder key(String key) {
      this.key = key;
      return this;
    }

    /** TLS with the roots of the Java runtime. */
    public Builder tls() {
      credentials = TlsChannelCredentials.create();
      return this;
    }

    /** TLS with these roots, in PEM. */
    public Builder tls(InputStream roots) throws IOException {
      credentials = TlsChannelCredentials.newBuilder().trustManager(roots).build();
      return this;
    }

    /** How often a request is sent at most, or is gone on with, before something comes. */
    public Builder attempts(int attempts) {
      this.attempts = attempts;
      return this;
    }

    /** For OpenTelemetry: {@code GrpcTelemetry.create(openTelemetry).createClientInterceptor()}. */
    public Builder intercept(ClientInterceptor interceptor) {
      interceptors.add(interceptor);
      return this;
    }

    public BatonClient build() {
      return new BatonClient(this);
    }
  }

  /** target: such as "host:8470" or "dns:///name:8470". The client connects at its first call. */
  public static Builder builder(String target) {
    return new Builder(target);
  }

  private BatonClient(Builder builder) {
    channel =
        Grpc.newChannelBuilder(builder.target, builder.credentials)
            .maxInboundMessageSize(MAX_ANSWER_BYTES + (1 << 20))
            .intercept(builder.interceptors)
            .build();
    Metadata metadata = new Metadata();
    if (!builder.key.isEmpty()) {
      metadata.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + builder.key);
    }
    stub = InferenceGrpc.newBlockingStub(channel).withInterceptors(MetadataUtils.newAttachHeadersInterceptor(metadata));
    attempts = builder.attempts;
  }

  /** A text of the user's as a request. */
  public static ChatRequest ask(String text) {
    ChatRequest.Builder request = ChatRequest.newBuilder();
    request.getConversationBuilder().addMessagesBuilder().setRole("user").setContent(text);
    return request.build();
  }

  /** The plain stub, with the key. */
  public InferenceBlockingStub stub() {
    return stub;
  }

  /** One whole answer. timeout: of all tries together, or null. Throws {@link BatonException}. */
  public Answer complete(ChatRequest request, Duration timeout) {
    ChatUnaryRequest whole = ChatUnaryRequest.newBuilder().setChat(named(request)).setMaxAnswerBytes(MAX_ANSWER_BYTES).build();
    Tries tries = new Tries(attempts, timeout);
    while (true) {
      try {
        return Answer.of(tries.begin(stub).chatUnary(whole));
      } catch (StatusRuntimeException failed) {
        tries.waitAfter(failed);
      }
    }
  }

  /** Parts as they come. timeout: of all tries together, or null. Close the stream: that cancels a request whose loop was left. */
  public AnswerStream stream(ChatRequest request, Duration timeout) {
    return new AnswerStream(stub, named(request), attempts, timeout);
  }

  @Override
  public void close() {
    channel.shutdownNow();
  }

  /** The request with an idempotency key and a seed, unless it has them: what is sent again takes the answer that was begun, on any router. */
  private static ChatRequest named(ChatRequest request) {
    ChatRequest.Builder made = request.toBuilder();
    if (made.getOptions().getIdempotencyKey().isEmpty()) {
      made.getOptionsBuilder().setIdempotencyKey(UUID.randomUUID().toString());
    }
    if (!made.getSampling().hasSeed()) {
      made.getSamplingBuilder().setSeed(RANDOM.nextLong() >>> (64 - SEED_BITS));
    }
    return made.build();
  }
}
