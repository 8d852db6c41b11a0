package example.baton.client;

import example.baton.v1.ChatResponse;
import example.baton.v1.Delta;
import example.baton.v1.PartEvent;
import example.baton.v1.PartStart;
import example.baton.v1.ResumeResponse;
import example.baton.v1.Started;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** The messages of one answer, in their order, from one stream or from several that go on with it. Events that are not known are skipped. */
final class Fold {
  Started started; // null before the first message
  int tokens;
  private final StringBuilder text = new StringBuilder();
  private final StringBuilder thinking = new StringBuilder();
  private final StringBuilder arguments = new StringBuilder();
  private final List<Part.ToolCall> calls = new ArrayList<>();
  private PartStart start = PartStart.getDefaultInstance();

  /** Gives the parts that the message completes. */
  void push(ChatResponse message, Consumer<Part> completed) {
    switch (message.getEventCase()) {
      case STARTED -> started = message.getStarted();
      case FINISHED ->
          completed.accept(
              new Answer(text.toString(), thinking.toString(), List.copyOf(calls), message.getFinished().getReason(), started, message.getFinished()));
      case DELTA -> push(message.getDelta(), completed);
      default -> {}
    }
  }

  void push(ResumeResponse message, Consumer<Part> completed) {
    ChatResponse.Builder same = ChatResponse.newBuilder();
    switch (message.getEventCase()) {
      case STARTED -> same.setStarted(message.getStarted());
      case FINISHED -> same.setFinished(message.getFinished());
      case DELTA -> same.setDelta(message.getDelta());
      default -> {}
    }
    push(same.build(), completed);
  }

  private void push(Delta delta, Consumer<Part> completed) {
    tokens += delta.getTokens();
    if (delta.getPartsCount() > 0 || (started != null && !started.getOutputFormat().isEmpty())) {
      delta.getPartsList().forEach(event -> push(event, completed));
    } else {
      say(delta.getText(), completed);
    }
  }

  private void say(String piece, Consumer<Part> completed) {
    if (!piece.isEmpty()) {
      text.append(piece);
      completed.accept(new Part.Text(piece));
    }
  }

  private void push(PartEvent event, Consumer<Part> completed) {
    switch (event.getEventCase()) {
      case START -> {
        start = event.getStart();
        arguments.setLength(0);
      }
      case TEXT -> {
        if (start.getKind() != PartStart.Kind.KIND_THINKING) {
          say(event.getText(), completed);
        } else if (!event.getText().isEmpty()) {
          thinking.append(event.getText());
          completed.accept(new Part.Thinking(event.getText()));
        }
      }
      case ARGUMENTS_JSON -> arguments.append(event.getArgumentsJson());
      case END -> {
        if (start.getKind() == PartStart.Kind.KIND_TOOL_CALL) {
          Part.ToolCall call = new Part.ToolCall(start.getId(), start.getName(), arguments.toString(), event.getEnd().getComplete());
          calls.add(call);
          completed.accept(call);
        }
      }
      default -> {}
    }
  }
}
