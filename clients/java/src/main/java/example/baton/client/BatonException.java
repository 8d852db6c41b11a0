package example.baton.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RequestInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/** A call that failed. The message has the code before it. */
public final class BatonException extends RuntimeException {
  private static final long serialVersionUID = 1;
  private static final Metadata.Key<String> PUSHBACK = Metadata.Key.of("grpc-retry-pushback-ms", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> REQUEST_ID = Metadata.Key.of("baton-request-id", Metadata.ASCII_STRING_MARSHALLER);

  private final transient Status status;
  private String reason = "";
  private transient Map<String, String> metadata = Map.of();
  private String field = "";
  private Duration retryAfter;
  private boolean isFinal;
  private String requestId = "";

  BatonException(StatusRuntimeException failed) {
    super(failed.getMessage(), failed);
    status = failed.getStatus();
    Metadata trailer = failed.getTrailers() == null ? new Metadata() : failed.getTrailers();
    if (trailer.containsKey(REQUEST_ID)) {
      requestId = trailer.get(REQUEST_ID);
    }
    String pushback = trailer.get(PUSHBACK);
    if (pushback != null && pushback.matches("\\d{1,18}")) {
      retryAfter = Duration.ofMillis(Long.parseLong(pushback));
    } else {
      isFinal = pushback != null;
    }
    com.google.rpc.Status details = StatusProto.fromThrowable(failed);
    for (Any detail : details.getDetailsList()) {
      try {
        read(detail);
      } catch (InvalidProtocolBufferException broken) {
        addSuppressed(broken);
      }
    }
  }

  private void read(Any detail) throws InvalidProtocolBufferException {
    if (detail.is(ErrorInfo.class)) {
      ErrorInfo info = detail.unpack(ErrorInfo.class);
      reason = info.getReason();
      metadata = info.getMetadataMap();
    } else if (detail.is(BadRequest.class)) {
      BadRequest bad = detail.unpack(BadRequest.class);
      field = bad.getFieldViolationsCount() > 0 ? bad.getFieldViolations(0).getField() : "";
    } else if (detail.is(RetryInfo.class)) {
      com.google.protobuf.Duration delay = detail.unpack(RetryInfo.class).getRetryDelay();
      retryAfter = Duration.ofSeconds(delay.getSeconds(), delay.getNanos());
    } else if (detail.is(RequestInfo.class)) {
      requestId = detail.unpack(RequestInfo.class).getRequestId();
    }
  }

  public Status.Code code() {
    return status.getCode();
  }

  /** For people. */
  public String details() {
    return status.getDescription() == null ? "" : status.getDescription();
  }

  /** For programs: a name of baton.v1.Reason without its prefix, or "". */
  public String reason() {
    return reason;
  }

  /** More about the reason. */
  public Map<String, String> metadata() {
    return metadata;
  }

  /** Path of the field that is wrong, or "". */
  public String field() {
    return field;
  }

  /** Empty where the server names none. */
  public Optional<Duration> retryAfter() {
    return Optional.ofNullable(retryAfter);
  }

  /** The server says that the same request never passes. */
  public boolean isFinal() {
    return isFinal;
  }

  /** Names the request in the logs of the service, or "". */
  public String requestId() {
    return requestId;
  }
}
