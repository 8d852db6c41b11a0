#include "gateway/mapping/constraint.h"

#include <fmt/format.h>

#include <string>

#include "common/base/status.h"

namespace baton::gateway {
namespace {

absl::Status Once(const JsonObject& body, std::string_view name, v1::Constraint* constraint) {
  if (constraint->kind_case() == v1::Constraint::KIND_NOT_SET) return absl::OkStatus();
  return body.Wrong(name, "the answer is constrained by another field too");
}

// A schema, or the text of one. Nothing is set if it is absent, or empty.
absl::Status ReadSchema(JsonObject& of, std::string_view name, v1::Constraint* constraint) {
  const Json* const schema = of.Find(name);  // null: absent
  if (schema == nullptr || *schema == "") return absl::OkStatus();
  BATON_RETURN_IF_ERROR(Once(of, name, constraint));
  constraint->set_json_schema(schema->is_string() ? schema->get<std::string>() : schema->dump());
  return absl::OkStatus();
}

absl::Status ReadRegex(JsonObject& of, std::string_view name, v1::Constraint* constraint) {
  BATON_ASSIGN_OR_RETURN(const auto regex, of.Text(name));
  if (regex.value_or("").empty()) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(Once(of, name, constraint));
  constraint->set_regex(*regex);
  return absl::OkStatus();
}

// vLLM's `structured_outputs`, and its older fields that begin with "guided_".
absl::Status ReadGuides(JsonObject& fields, const std::string& prefix, v1::Constraint* constraint) {
  BATON_RETURN_IF_ERROR(ReadSchema(fields, prefix + "json", constraint));
  BATON_RETURN_IF_ERROR(ReadRegex(fields, prefix + "regex", constraint));
  BATON_ASSIGN_OR_RETURN(const auto grammar, fields.Text(prefix + "grammar"));
  if (grammar.has_value()) {
    BATON_RETURN_IF_ERROR(Once(fields, prefix + "grammar", constraint));
    constraint->set_lark(*grammar);
  }
  BATON_ASSIGN_OR_RETURN(const auto any, fields.Flag(prefix + "json_object"));
  if (any.value_or(false)) {
    BATON_RETURN_IF_ERROR(Once(fields, prefix + "json_object", constraint));
    constraint->set_json_object(true);
  }
  BATON_ASSIGN_OR_RETURN(const Json* const choices, fields.List(prefix + "choice"));
  if (choices == nullptr) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(Once(fields, prefix + "choice", constraint));
  constraint->mutable_choices();
  for (const Json& choice : *choices) {
    if (!choice.is_string()) return fields.Wrong(prefix + "choice", "not a list of texts");
    constraint->mutable_choices()->add_values(choice.get<std::string>());
  }
  return absl::OkStatus();
}

// vLLM's and SGLang's response_format of this type: spans that obey schemas in text that is free.
absl::Status ReadStructuralTags(JsonObject& wanted, v1::StructuralTags* tags) {
  BATON_ASSIGN_OR_RETURN(const Json* const structures, wanted.List("structures"));
  if (structures == nullptr) return wanted.Wrong("structures", "absent");
  for (size_t i = 0; i < structures->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(JsonObject one,
                           wanted.Inside((*structures)[i], fmt::format("response_format.structures[{}]", i)));
    BATON_ASSIGN_OR_RETURN(const auto begin, one.Text("begin"));
    BATON_ASSIGN_OR_RETURN(const auto end, one.Text("end"));
    const Json* const schema = one.Find("schema");  // null: absent
    if (schema == nullptr) return one.Wrong("schema", "absent");
    v1::StructuralTags::Tag* const tag = tags->add_tags();
    tag->set_begin(begin.value_or(""));
    tag->set_end(end.value_or(""));
    tag->set_json_schema(schema->dump());
  }
  BATON_ASSIGN_OR_RETURN(const Json* const triggers, wanted.List("triggers"));
  if (triggers == nullptr) return wanted.Wrong("triggers", "absent");
  for (const Json& trigger : *triggers) {
    if (!trigger.is_string()) return wanted.Wrong("triggers", "not a list of texts");
    tags->add_triggers(trigger.get<std::string>());
  }
  return absl::OkStatus();
}

// OpenAI's, and llama.cpp's forms of it, which have the schema in it.
absl::Status ReadResponseFormat(JsonObject& body, v1::Constraint* constraint) {
  const Json* const format = body.Find("response_format");  // null: absent
  if (format == nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(JsonObject wanted, body.Inside(*format, "response_format"));
  BATON_ASSIGN_OR_RETURN(const auto type, wanted.Text("type"));
  if (type == "text") return absl::OkStatus();
  BATON_RETURN_IF_ERROR(Once(body, "response_format", constraint));
  if (type == "structural_tag") return ReadStructuralTags(wanted, constraint->mutable_structural_tags());
  if (type != "json_object" && type != "json_schema") {
    return wanted.Wrong("type", "not one of text, json_object, json_schema and structural_tag");
  }
  if (const Json* const named = wanted.Find("json_schema"); named != nullptr) {  // null: absent
    BATON_ASSIGN_OR_RETURN(JsonObject object, wanted.Inside(*named, "response_format.json_schema"));
    // It is always obeyed to the letter.
    object.Skip({"name", "description", "strict"});
    BATON_RETURN_IF_ERROR(ReadSchema(object, "schema", constraint));
    if (!constraint->has_json_schema()) return object.Wrong("schema", "absent");
    return absl::OkStatus();
  }
  BATON_RETURN_IF_ERROR(ReadSchema(wanted, "schema", constraint));
  if (constraint->has_json_schema()) return absl::OkStatus();
  if (type == "json_schema") return wanted.Wrong("json_schema", "absent");
  constraint->set_json_object(true);
  return absl::OkStatus();
}

// Grammars in notations that are not read here.
absl::Status RefuseGrammars(JsonObject& body) {
  for (const char* const name : {"grammar", "ebnf"}) {
    const Json* const grammar = body.Find(name);  // null: absent
    if (grammar == nullptr || *grammar == "") continue;
    return body.Wrong(name, "not served here: structured_outputs.grammar takes one in Lark");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadForm(JsonObject& body, v1::Constraint* constraint) {
  BATON_RETURN_IF_ERROR(ReadResponseFormat(body, constraint));
  if (const Json* const guides = body.Find("structured_outputs"); guides != nullptr) {  // null: absent
    BATON_ASSIGN_OR_RETURN(JsonObject fields, JsonObject::Of(*guides, "structured_outputs"));
    BATON_RETURN_IF_ERROR(ReadGuides(fields, "", constraint));
    if (!fields.Ignored().empty()) {
      return absl::InvalidArgumentError(fmt::format("{}: not served here", fields.Ignored().front()));
    }
  }
  BATON_RETURN_IF_ERROR(ReadGuides(body, "guided_", constraint));
  BATON_RETURN_IF_ERROR(ReadSchema(body, "json_schema", constraint));
  BATON_RETURN_IF_ERROR(ReadRegex(body, "regex", constraint));
  return RefuseGrammars(body);
}

}  // namespace baton::gateway
