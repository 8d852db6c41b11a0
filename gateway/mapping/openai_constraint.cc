#include "gateway/mapping/openai_constraint.h"

#include <fmt/format.h>

#include <string>

#include "common/base/status.h"

namespace baton::gateway {
namespace {

absl::Status Once(const JsonObject& body, std::string_view name, v1::Constraint* constraint) {
  if (constraint->kind_case() == v1::Constraint::KIND_NOT_SET) return absl::OkStatus();
  return body.Wrong(name, "the answer is constrained by another field too");
}

// vLLM's `structured_outputs`, and its older fields that begin with "guided_".
absl::Status ReadGuides(JsonObject& fields, const std::string& prefix, v1::Constraint* constraint) {
  if (const Json* const schema = fields.Find(prefix + "json"); schema != nullptr) {  // null: absent
    BATON_RETURN_IF_ERROR(Once(fields, prefix + "json", constraint));
    constraint->set_json_schema(schema->is_string() ? schema->get<std::string>() : schema->dump());
  }
  BATON_ASSIGN_OR_RETURN(const auto regex, fields.Text(prefix + "regex"));
  if (regex.has_value()) {
    BATON_RETURN_IF_ERROR(Once(fields, prefix + "regex", constraint));
    constraint->set_regex(*regex);
  }
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

}  // namespace

absl::Status ReadConstraint(JsonObject& body, v1::Constraint* constraint) {
  if (const Json* const format = body.Find("response_format"); format != nullptr) {  // null: absent
    BATON_ASSIGN_OR_RETURN(JsonObject wanted, body.Inside(*format, "response_format"));
    BATON_ASSIGN_OR_RETURN(const auto type, wanted.Text("type"));
    if (type == "json_object") {
      constraint->set_json_object(true);
    } else if (type == "json_schema") {
      const Json* const named = wanted.Find("json_schema");  // null: absent
      if (named == nullptr) return wanted.Wrong("json_schema", "absent");
      BATON_ASSIGN_OR_RETURN(JsonObject object, wanted.Inside(*named, "response_format.json_schema"));
      // It is always obeyed to the letter.
      object.Skip({"name", "description", "strict"});
      const Json* const schema = object.Find("schema");  // null: absent
      if (schema == nullptr) return object.Wrong("schema", "absent");
      constraint->set_json_schema(schema->dump());
    } else if (type == "structural_tag") {
      BATON_RETURN_IF_ERROR(ReadStructuralTags(wanted, constraint->mutable_structural_tags()));
    } else if (type != "text") {
      return wanted.Wrong("type", "not one of text, json_object, json_schema and structural_tag");
    }
  }
  if (const Json* const guides = body.Find("structured_outputs"); guides != nullptr) {  // null: absent
    BATON_ASSIGN_OR_RETURN(JsonObject fields, JsonObject::Of(*guides, "structured_outputs"));
    BATON_RETURN_IF_ERROR(ReadGuides(fields, "", constraint));
    if (!fields.Ignored().empty()) {
      return absl::InvalidArgumentError(fmt::format("{}: not served here", fields.Ignored().front()));
    }
  }
  return ReadGuides(body, "guided_", constraint);
}

}  // namespace baton::gateway
