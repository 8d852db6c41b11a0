#include "router/reception.h"

#include <fmt/format.h>

#include "common/base/status.h"
#include "router/conversation.h"
#include "router/validation.h"

namespace baton::router {
namespace {

template <typename Message>
void SetTokens(const std::vector<TokenId>& tokens, Message* message) {
  message->mutable_token_ids()->Reserve(static_cast<int>(tokens.size()));
  for (TokenId token : tokens) message->add_token_ids(token.value());
}

}  // namespace

template <typename Request>
absl::Status Reception::CheckCommon(const Request& request) const {
  BATON_RETURN_IF_ERROR(model_->CheckName(request.model()));
  BATON_RETURN_IF_ERROR(CheckSampling(request.sampling(), model_->vocabulary));
  BATON_RETURN_IF_ERROR(CheckStop(request.stop(), model_->vocabulary));
  BATON_RETURN_IF_ERROR(CheckOutput(request.output()));
  return CheckOptions(request.options());
}

absl::Status Reception::Check(const v1::GenerateRequest& request) const {
  BATON_RETURN_IF_ERROR(CheckCommon(request));
  if (request.has_text()) return CheckText(request.text());
  if (!request.has_token_ids()) return absl::InvalidArgumentError("prompt: missing; set text or token_ids");
  if (request.token_ids().ids().empty())
    return absl::InvalidArgumentError("token_ids.ids: empty; a prompt needs at least one token");
  return CheckTokenIds(request.token_ids().ids(), model_->vocabulary, "token_ids.ids");
}

absl::Status Reception::Check(const v1::ChatRequest& request) const {
  BATON_RETURN_IF_ERROR(CheckCommon(request));
  return CheckConversationHere(request.conversation());
}

absl::Status Reception::Check(const v1::TokenizeRequest& request) const {
  BATON_RETURN_IF_ERROR(model_->CheckName(request.model()));
  if (request.has_text()) return CheckText(request.text());
  if (!request.has_conversation()) {
    return absl::InvalidArgumentError("input: missing; set text or conversation");
  }
  return CheckConversationHere(request.conversation());
}

absl::Status Reception::CheckConversationHere(const v1::Conversation& conversation) const {
  if (model_->chat_template == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("conversation: model \"{}\" has no chat template; use Generate", model_->name));
  }
  return CheckConversation(conversation);
}

absl::Status Reception::CheckText(const std::string& text) const {
  if (text.empty()) return absl::InvalidArgumentError("text: empty; a prompt needs at least one token");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> Reception::EncodeText(const std::string& text) const {
  BATON_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, model_->tokenizer->Encode(text, true));
  if (tokens.empty()) return absl::InvalidArgumentError("text: no tokens in it");
  return tokens;
}

absl::StatusOr<Reception::Rendered> Reception::Render(const v1::Conversation& conversation) const {
  Rendered rendered;
  auto text = model_->chat_template->Render(TemplateVariables(conversation));
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        fmt::format("conversation: {}", std::string(text.status().message())));
  }
  rendered.text = *std::move(text);
  // The template writes the special tokens itself.
  BATON_ASSIGN_OR_RETURN(rendered.tokens, model_->tokenizer->Encode(rendered.text, false));
  if (rendered.tokens.empty()) {
    return absl::InvalidArgumentError("conversation: the chat template made nothing of it");
  }
  return rendered;
}

template <typename Request>
absl::StatusOr<Prepared> Reception::Complete(const Request& request, const Tenant& tenant,
                                             v1::DecodeRequest decode) const {
  Prepared prepared;
  prepared.seed = request.sampling().has_seed() ? request.sampling().seed() : draw_seed_();
  *decode.mutable_sampling() = ResolveSampling(request.sampling(), model_->defaults, prepared.seed);
  *decode.mutable_stop() = request.stop();
  BATON_ASSIGN_OR_RETURN(
      const uint32_t max_tokens,
      ResolveMaxTokens(request.stop(), model_->defaults, decode.token_ids_size(), model_->context));
  decode.mutable_stop()->set_max_tokens(max_tokens);
  *decode.mutable_output() = request.output();
  decode.set_salt(tenant.salt.bytes());
  decode.set_priority(request.options().priority());
  prepared.request = std::move(decode);
  prepared.model = model_->name;
  prepared.choices = request.options().has_n() ? static_cast<int>(request.options().n()) : 1;
  if (!request.options().session_id().empty()) {
    prepared.session = std::hash<std::string>()(request.options().session_id()) | 1;
  }
  prepared.debug = request.options().debug();
  prepared.token_ids = request.output().token_ids();
  return prepared;
}

absl::StatusOr<Prepared> Reception::Prepare(const v1::GenerateRequest& request, const Tenant& tenant) const {
  v1::DecodeRequest decode;
  if (request.has_text()) {
    BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, EncodeText(request.text()));
    SetTokens(tokens, &decode);
  } else {
    *decode.mutable_token_ids() = request.token_ids().ids();
  }
  return Complete(request, tenant, std::move(decode));
}

absl::StatusOr<Prepared> Reception::Prepare(const v1::ChatRequest& request, const Tenant& tenant) const {
  v1::DecodeRequest decode;
  BATON_ASSIGN_OR_RETURN(const Rendered rendered, Render(request.conversation()));
  SetTokens(rendered.tokens, &decode);
  return Complete(request, tenant, std::move(decode));
}

absl::StatusOr<v1::TokenizeResponse> Reception::Tokenize(const v1::TokenizeRequest& request) const {
  v1::TokenizeResponse response;
  if (request.has_text()) {
    BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, EncodeText(request.text()));
    SetTokens(tokens, &response);
    response.set_text(request.text());
    return response;
  }
  BATON_ASSIGN_OR_RETURN(Rendered rendered, Render(request.conversation()));
  SetTokens(rendered.tokens, &response);
  response.set_text(std::move(rendered.text));
  return response;
}

absl::StatusOr<v1::DetokenizeResponse> Reception::Detokenize(const v1::DetokenizeRequest& request) const {
  BATON_RETURN_IF_ERROR(model_->CheckName(request.model()));
  BATON_RETURN_IF_ERROR(CheckTokenIds(request.token_ids(), model_->vocabulary, "token_ids"));
  std::vector<TokenId> tokens;
  tokens.reserve(request.token_ids_size());
  for (int32_t id : request.token_ids()) tokens.emplace_back(id);
  v1::DetokenizeResponse response;
  BATON_ASSIGN_OR_RETURN(*response.mutable_text(),
                         model_->tokenizer->Decode(tokens, request.special_tokens()));
  return response;
}

}  // namespace baton::router
