package example.baton.client;

import example.baton.v1.ChatRequest;
import example.baton.v1.ChatResponse;
import example.baton.v1.InferenceGrpc.InferenceBlockingStub;
import example.baton.v1.ResumeRequest;
import example.baton.v1.ResumeResponse;
import io.grpc.Context;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Queue;

/**
 * Parts as they come, and last the whole {@link Answer}. After a cut it goes on behind the last token that came, on whichever router. For one
 * thread. {@link #close} cancels the request if it has not ended. hasNext and next throw {@link BatonException}.
 */
public final class AnswerStream implements Iterator<Part>, Iterable<Part>, AutoCloseable {
  private final InferenceBlockingStub stub;
  private final ChatRequest request;
  private final Tries tries;
  private final Fold fold = new Fold();
  private final Queue<Part> parts = new ArrayDeque<>();
  private final Context.CancellableContext context = Context.current().withCancellation();
  private Iterator<?> messages; // of the call under way, or null
  private boolean ended;

  AnswerStream(InferenceBlockingStub stub, ChatRequest request, int attempts, Duration timeout) {
    this.stub = stub;
    this.request = request;
    tries = new Tries(attempts, timeout);
  }

  @Override
  public Iterator<Part> iterator() {
    return this;
  }

  @Override
  public boolean hasNext() {
    while (parts.isEmpty() && !ended) {
      try {
        read();
      } catch (StatusRuntimeException failed) {
        messages = null;
        tries.waitAfter(failed);
      }
    }
    return !parts.isEmpty();
  }

  @Override
  public Part next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    return parts.remove();
  }

  @Override
  public void close() {
    context.close();
  }

  /** Takes one message, of a new call if none is under way. */
  private void read() {
    if (messages == null) {
      InferenceBlockingStub next = tries.begin(stub);
      Context before = context.attach();
      try {
        messages = fold.started == null ? next.chat(request) : next.resume(resumed());
      } finally {
        context.detach(before);
      }
    }
    if (!messages.hasNext()) {
      throw Status.UNAVAILABLE.withDescription("the stream ended before its answer").asRuntimeException();
    }
    Object message = messages.next();
    tries.goWell();
    if (message instanceof ChatResponse first) {
      fold.push(first, this::take);
    } else {
      fold.push((ResumeResponse) message, this::take);
    }
  }

  private void take(Part part) {
    parts.add(part);
    ended |= part instanceof Answer;
  }

  /** Asks for what follows the tokens that came. The build pins the answer to the bits that it was begun with. */
  private ResumeRequest resumed() {
    ChatRequest.Builder chat = request.toBuilder();
    if (!fold.started.getBuild().isEmpty()) {
      chat.getOptionsBuilder().setBuild(fold.started.getBuild());
    }
    return ResumeRequest.newBuilder().setRequestId(fold.started.getRequestId()).addAfterTokens(fold.tokens).setChat(chat).build();
  }
}
