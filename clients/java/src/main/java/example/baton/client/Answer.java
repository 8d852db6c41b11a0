package example.baton.client;

import example.baton.v1.AnswerChoice;
import example.baton.v1.AnswerPart;
import example.baton.v1.ChatUnaryResponse;
import example.baton.v1.FinishReason;
import example.baton.v1.Finished;
import example.baton.v1.Message;
import example.baton.v1.Started;
import java.util.ArrayList;
import java.util.List;

/** One whole answer. {@code finished.getUsage()} says what it took. */
public record Answer(String text, String thinking, List<ToolCall> calls, FinishReason reason, Started started, Finished finished) implements Part {
  /** The answer as the next message of its conversation. */
  public Message message() {
    Message.Builder message = Message.newBuilder().setRole("assistant").setContent(text).setReasoningContent(thinking);
    for (ToolCall call : calls) {
      if (call.complete()) {
        message.addToolCallsBuilder().setId(call.id()).setName(call.name()).setArgumentsJson(call.argumentsJson());
      }
    }
    return message.build();
  }

  /** The first choice. */
  static Answer of(ChatUnaryResponse whole) {
    AnswerChoice choice = whole.getChoices(0);
    StringBuilder thinking = new StringBuilder();
    List<ToolCall> calls = new ArrayList<>();
    for (AnswerPart part : choice.getPartsList()) {
      thinking.append(part.getThinking());
      if (part.hasToolCall()) {
        example.baton.v1.ToolCall call = part.getToolCall();
        calls.add(new ToolCall(call.getId(), call.getName(), call.getArgumentsJson(), part.getComplete()));
      }
    }
    Finished finished = choice.getFinished();
    return new Answer(choice.getText(), thinking.toString(), List.copyOf(calls), finished.getReason(), whole.getStarted(), finished);
  }
}
