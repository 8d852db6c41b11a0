// The smallest useful client in C++: a chat that streams, a loop of tools, an answer that obeys a schema, and
// a document that stays cached. Build it with the stubs of proto/baton/v1 (protoc --cpp_out --grpc_out) and
// gRPC; here CMake's target is example_chat.
#include <grpcpp/create_channel.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "baton/v1/inference.grpc.pb.h"

namespace v1 = baton::v1;

namespace {

void Check(const grpc::Status& status) {
  if (status.ok()) return;
  std::cerr << status.error_message() << "\n";
  std::exit(1);
}

void Say(v1::Conversation* talk, const std::string& role, const std::string& content) {
  v1::Message& message = *talk->add_messages();
  message.set_role(role);
  message.set_content(content);
}

v1::AnswerChoice Ask(v1::Inference::Stub& stub, const v1::ChatRequest& request) {
  grpc::ClientContext context;
  v1::ChatUnaryRequest unary;
  *unary.mutable_chat() = request;
  v1::ChatUnaryResponse answer;
  Check(stub.ChatUnary(&context, unary, &answer));
  return answer.choices(0);
}

void Stream(v1::Inference::Stub& stub) {
  v1::ChatRequest request;
  Say(request.mutable_conversation(), "user", "Hello! My name is Ada.");
  grpc::ClientContext context;
  const auto stream = stub.Chat(&context, request);
  for (v1::ChatResponse event; stream->Read(&event);) std::cout << event.delta().text() << std::flush;
  std::cout << "\n";
  Check(stream->Finish());
}

// Asks, runs what the model calls, sends back the results, and asks again until it calls nothing.
void Tools(v1::Inference::Stub& stub) {
  v1::ChatRequest request;
  v1::Conversation& talk = *request.mutable_conversation();
  Say(&talk, "user", "What is the weather in Oslo?");
  v1::Tool& tool = *talk.add_tools();
  tool.set_name("get_weather");
  tool.set_description("Get the weather of a city.");
  tool.set_parameters_json(
      R"({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})");
  while (true) {
    const v1::AnswerChoice choice = Ask(stub, request);
    if (choice.finished().reason() != v1::FINISH_REASON_TOOL_CALLS) {
      std::cout << choice.text() << "\n";
      return;
    }
    Say(&talk, "assistant", choice.text());
    const int turn = talk.messages_size() - 1;
    for (const v1::AnswerPart& part : choice.parts()) {
      talk.mutable_messages(turn)->mutable_reasoning_content()->append(part.thinking());
      if (!part.has_tool_call() || !part.complete()) continue;
      std::cout << part.tool_call().name() << "(" << part.tool_call().arguments_json() << ")\n";
      *talk.mutable_messages(turn)->add_tool_calls() = part.tool_call();
      Say(&talk, "tool", "sunny");
      talk.mutable_messages()->rbegin()->set_tool_call_id(part.tool_call().id());
    }
  }
}

// The mark keeps the document's KV in the cache, so each question after the first computes itself alone.
void Document(v1::Inference::Stub& stub) {
  std::string handbook;
  for (int room = 10; room < 40; ++room) {
    handbook.append("Room ").append(std::to_string(room)).append(" is on floor ");
    handbook.append(std::to_string(room / 10)).append(". ");
  }
  for (const int room : {25, 31}) {
    v1::ChatRequest request;
    Say(request.mutable_conversation(), "system", handbook);
    request.mutable_conversation()->mutable_messages(0)->mutable_cache()->set_ttl(v1::CACHE_TTL_1H);
    Say(request.mutable_conversation(), "user",
        std::string("On which floor is room ").append(std::to_string(room)).append("?"));
    request.mutable_constraint()->set_json_schema(
        R"({"type": "object", "properties": {"floor": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["floor"], "additionalProperties": false})");
    const v1::AnswerChoice choice = Ask(stub, request);
    const v1::Usage& usage = choice.finished().usage();
    std::cout << choice.text() << " " << usage.written_hour_tokens() << " tokens written, "
              << usage.cached_tokens() << " found\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto stub = v1::Inference::NewStub(
      grpc::CreateChannel(argc > 1 ? argv[1] : "127.0.0.1:8470", grpc::InsecureChannelCredentials()));
  Stream(*stub);
  Tools(*stub);
  Document(*stub);
  return 0;
}
