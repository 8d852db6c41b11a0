package example.baton.client;

import java.time.Duration;

/** Streams an answer: Example [ADDRESS]. BATON_API_KEY is the key, if one is needed. */
public final class Example {
  public static void main(String[] arguments) {
    String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:8470";
    String key = System.getenv().getOrDefault("BATON_API_KEY", "");
    try (BatonClient client = BatonClient.builder(address).key(key).build();
        AnswerStream parts = client.stream(BatonClient.ask("Hello! My name is Ada."), Duration.ofMinutes(2))) {
      for (Part part : parts) {
        if (part instanceof Part.Text text) {
          System.out.print(text.text());
        } else if (part instanceof Answer answer) {
          System.out.printf("%n%s, %d tokens%n", answer.reason(), answer.finished().getUsage().getCompletionTokens());
        }
      }
    }
  }
}
