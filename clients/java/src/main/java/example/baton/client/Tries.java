package example.baton.client;

import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.AbstractStub;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** The tries of one request, within its time. */
final class Tries {
  private static final Duration FIRST_WAIT = Duration.ofMillis(200); // where the server names none
  private final int most;
  private final Long end; // of System.nanoTime, or null
  private int count;

  Tries(int most, Duration timeout) {
    this.most = most;
    end = timeout == null ? null : System.nanoTime() + timeout.toNanos();
  }

  /** The stub for the next try. */
  <S extends AbstractStub<S>> S begin(S stub) {
    count++;
    return end == null ? stub : stub.withDeadlineAfter(end - System.nanoTime(), TimeUnit.NANOSECONDS);
  }

  /** Something came: the tries are counted from here. */
  void goWell() {
    count = 1;
  }

  /** Waits before the next try. Throws the error if there is none. */
  void waitAfter(StatusRuntimeException failed) {
    BatonException error = new BatonException(failed);
    boolean again = error.code() == Status.Code.RESOURCE_EXHAUSTED || error.code() == Status.Code.UNAVAILABLE;
    Duration wait = error.retryAfter().orElse(FIRST_WAIT.multipliedBy(1L << Math.min(count - 1, 20)));
    if (!again || error.isFinal() || count >= most || (end != null && wait.toNanos() >= end - System.nanoTime())) {
      throw error;
    }
    try {
      TimeUnit.NANOSECONDS.sleep(wait.toNanos());
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw error;
    }
  }
}
