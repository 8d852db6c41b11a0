package example.baton.client;

/** A part of a stream, which has the {@link Answer} last. */
public sealed interface Part permits Part.Text, Part.Thinking, Part.ToolCall, Answer {
  /** A piece of the answer itself. */
  record Text(String text) implements Part {}

  /** A piece of what the model wrote for itself before. */
  record Thinking(String text) implements Part {}

  /** A call of a tool. Don't run it unless it is complete: the answer ended inside it. */
  record ToolCall(String id, String name, String argumentsJson, boolean complete) implements Part {}
}
