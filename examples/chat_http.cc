// The smallest useful client in C++ over HTTP: a chat that streams. It needs no stubs, only Boost (Beast) and
// a reader of JSON; here CMake's target is example_chat_http. Over TLS, or with tools and schemas, chat.cc is
// shorter.
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

namespace http = boost::beast::http;

namespace {

// Splits an event stream into events: "data: JSON", and an empty line.
class Events {
 public:
  // Prints what the bytes add to the answer.
  void Add(const char* bytes, size_t size) {
    text_.append(bytes, size);
    for (size_t end; (end = text_.find("\n\n")) != std::string::npos; text_.erase(0, end + 2)) {
      const std::string event = text_.substr(0, end);
      if (!event.starts_with("data: {")) continue;  // a comment, or [DONE]
      const auto chunk = nlohmann::json::parse(event.substr(6));
      if (chunk.contains("error")) throw std::runtime_error(chunk["error"]["message"].get<std::string>());
      for (const auto& choice : chunk["choices"])
        std::cout << choice["delta"].value("content", "") << std::flush;
    }
  }

 private:
  std::string text_;
};

void Chat(const std::string& host, const std::string& port) {
  boost::asio::io_context context;
  boost::beast::tcp_stream stream(context);
  stream.connect(boost::asio::ip::tcp::resolver(context).resolve(host, port));
  http::request<http::string_body> request(http::verb::post, "/v1/chat/completions", 11);
  request.set(http::field::host, host);
  request.set(http::field::content_type, "application/json");
  request.body() = nlohmann::json{
      {"messages", {{{"role", "user"}, {"content", "Hello! My name is Ada."}}}},
      {"stream", true}}.dump();
  request.prepare_payload();
  http::write(stream, request);

  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> answer;
  http::read_header(stream, buffer, answer);
  if (answer.get().result() != http::status::ok) {
    throw std::runtime_error("the service said " + std::to_string(answer.get().result_int()));
  }
  Events events;
  while (!answer.is_done()) {
    char bytes[4096];
    answer.get().body().data = bytes;
    answer.get().body().size = sizeof(bytes);
    boost::system::error_code error;
    http::read_some(stream, buffer, answer, error);
    if (error && error != http::error::need_buffer) throw boost::system::system_error(error);
    events.Add(bytes, sizeof(bytes) - answer.get().body().size);
  }
  std::cout << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string address = argc > 1 ? argv[1] : "127.0.0.1:8000";
  const size_t colon = address.rfind(':');
  try {
    Chat(address.substr(0, colon), address.substr(colon + 1));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
