#include "cli/serve/served_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "cli/serve/flag_list.h"
#include "common/base/status.h"
#include "router/models_file.h"
#include "text/config/json_fields.h"
#include "text/config/model_path.h"
#include "text/utf8.h"

namespace baton::cli {
namespace {

constexpr int64_t kMostFileBytes = 1 << 20;
constexpr size_t kLongestProcessName = 100;
constexpr int kMostWorkers = 64;  // of a role of a model, as --prefill and --decode have it

// A classifier judges texts of a few hundred tokens.
const std::vector<std::string>& SmallWorkerFlags() {
  static const auto& flags = *new std::vector<std::string>{"--threads=1", "--kv-memory=64MiB"};
  return flags;
}

// Flags that `baton serve` sets for each worker.
const std::set<std::string>& SetByPlace() {
  static const auto& names = *new std::set<std::string>{
      "--model",          "--model-name",       "--worker-id",    "--listen",  "--metrics",
      "--devices",        "--share-cores",      "--tls-cert",     "--tls-key", "--tls-ca",
      "--fleet-key-file", "--exit-with-parent", "--tls-peer-name"};
  return names;
}

// As the router has it: the last part of the path, whatever is linked there.
std::string NameAtPath(const std::string& folder) {
  std::filesystem::path path(folder);
  if (!path.has_filename()) path = path.parent_path();  // a trailing slash
  return path.filename().string();
}

// Without links, dots and a trailing slash.
std::string Canonical(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::weakly_canonical(folder, error);
  return error ? folder : (path.has_filename() ? path : path.parent_path()).string();
}

std::string NameOf(const std::string& folder) { return NameAtPath(Canonical(folder)); }

// Process names are names of files and folders too (--log-dir, --kv-disk).
std::string ProcessName(const std::string& name) {
  std::string safe = name;
  for (char& c : safe) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  }
  safe.resize(std::min(safe.size(), kLongestProcessName));
  return safe;
}

void BeSmallClassifier(ServedModel* model) {
  model->classifier = true;
  model->prefill = 0;
  model->decode = 1;
  model->common_flags = false;
  model->flags = SmallWorkerFlags();
}

absl::StatusOr<std::vector<std::string>> FlagsAt(const model::JsonFields& fields, const std::string& where,
                                                 const char* name) {
  std::vector<std::string> flags;
  const model::Json* const list = fields.Find(name);
  if (list == nullptr) return flags;
  const absl::Status wrong = absl::InvalidArgumentError(
      fmt::format("{}: field \"{}\" is not a list of flags, each as \"--name=value\"", where, name));
  if (!list->is_array()) return wrong;
  for (const model::Json& flag : *list) {
    if (!flag.is_string() || !flag.get<std::string>().starts_with("--")) return wrong;
    flags.push_back(flag.get<std::string>());
  }
  if (const absl::Status status = CheckWorkerFlags(flags); !status.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: field \"{}\": {}", where, name, std::string(status.message())));
  }
  return flags;
}

absl::Status ReadWorkers(const model::Json& json, const std::string& where, ServedModel* model) {
  if (!json.is_object()) return absl::InvalidArgumentError(fmt::format("{}: not an object", where));
  static const auto& known =
      *new std::set<std::string>{"prefill", "decode", "flags", "prefill_flags", "decode_flags"};
  for (const auto& [name, value] : json.items()) {
    if (!known.contains(name))
      return absl::InvalidArgumentError(fmt::format("{}: unknown field \"{}\"", where, name));
  }
  model::JsonFields fields(json, where);
  model->counted = fields.Has("prefill") || fields.Has("decode");
  model->prefill = static_cast<int>(fields.Integer("prefill", 0, kMostWorkers, model->prefill));
  model->decode = static_cast<int>(fields.Integer("decode", 1, kMostWorkers, model->decode));
  BATON_RETURN_IF_ERROR(fields.status());
  BATON_ASSIGN_OR_RETURN(model->flags, FlagsAt(fields, where, "flags"));
  BATON_ASSIGN_OR_RETURN(model->prefill_flags, FlagsAt(fields, where, "prefill_flags"));
  BATON_ASSIGN_OR_RETURN(model->decode_flags, FlagsAt(fields, where, "decode_flags"));
  return absl::OkStatus();
}

// By the router's reader, so that what that refuses at the router's start is refused before any worker
// starts.
absl::StatusOr<router::ModelsFile> ReadAsRouter(const model::Json& root, const std::string& file) {
  model::Json seen = root;
  if (seen.is_object() && seen.contains("models") && seen["models"].is_array()) {
    for (model::Json& entry : seen["models"]) {
      if (entry.is_object()) entry.erase("workers");
    }
  }
  return router::ParseModels(seen.dump(), file);
}

absl::Status ReadFile(const ModelFlags& flags, ServedModels* served) {
  BATON_ASSIGN_OR_RETURN(const std::string text, model::ReadTextFile(flags.file, kMostFileBytes));
  BATON_ASSIGN_OR_RETURN(const model::Json root, model::ParseJson(text, flags.file));
  BATON_ASSIGN_OR_RETURN(const router::ModelsFile read, ReadAsRouter(root, flags.file));
  for (size_t i = 0; i < read.models.size(); ++i) {
    const std::string place = fmt::format("{}: models[{}]", flags.file, i);
    ServedModel model{
        .folder = read.models[i].folder,
        .name = read.models[i].name.empty() ? NameAtPath(read.models[i].folder) : read.models[i].name,
        .prefill = flags.prefill,
        .decode = flags.decode,
        .classifier = !read.models[i].classifier.empty()};
    if (read.models[i].HasWorkers()) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: it says where workers are, and `baton serve` starts them: say in \"workers\" how many, in "
          "place of \"decode\", \"prefill\" and \"fleet_file\"",
          place));
    }
    model.entry = root["models"][i];
    const auto workers = model.entry.find("workers");
    if (workers != model.entry.end()) {
      BATON_RETURN_IF_ERROR(ReadWorkers(*workers, place + ": workers", &model));
      model.entry.erase("workers");
    } else {
      const auto same =
          std::find_if(served->models.begin(), served->models.end(), [&](const ServedModel& other) {
            return !other.same_as.has_value() && Canonical(other.folder) == Canonical(model.folder);
          });
      if (same != served->models.end()) {
        model.same_as = static_cast<size_t>(same - served->models.begin());
      } else if (model.classifier) {
        BeSmallClassifier(&model);
      }
    }
    served->models.push_back(std::move(model));
  }
  if (const auto rules = root.find("moderation"); rules != root.end()) served->moderation = *rules;
  return absl::OkStatus();
}

void TakeFlags(const ModelFlags& flags, ServedModels* served) {
  for (size_t i = 0; i < flags.folders.size(); ++i) {
    ServedModel model{.folder = flags.folders[i],
                      .name = i < flags.names.size() ? flags.names[i] : "",
                      .prefill = flags.prefill,
                      .decode = flags.decode};
    if (model.name.empty()) model.name = NameOf(model.folder);
    for (size_t other = 0; other < i && !model.same_as.has_value(); ++other) {
      if (Canonical(flags.folders[other]) == Canonical(model.folder)) model.same_as = other;
    }
    if (i > 0) model.entry = {{"folder", model.folder}, {"name", model.name}};
    served->models.push_back(std::move(model));
  }
  for (size_t i = 1; flags.folders.size() == 1 && i < flags.names.size(); ++i) {
    ServedModel more{.folder = flags.folders[0], .name = flags.names[i], .same_as = 0};
    more.entry = {{"folder", more.folder}, {"name", more.name}};
    if (!flags.output_format.empty()) more.entry["output_format"] = flags.output_format;
    served->models.push_back(std::move(more));
  }
}

// Gives each model the part of its processes' names, and sees that no two have one name.
absl::Status NameProcesses(ServedModels* served) {
  std::map<std::string, std::string> owners;  // of names for clients, and of those in processes
  for (size_t i = 0; i < served->models.size(); ++i) {
    ServedModel& model = served->models[i];
    if (!owners.emplace("name " + model.name, model.name).second) {
      return absl::InvalidArgumentError(
          fmt::format("two models are named {}: give one of them another name", model.name));
    }
    if (model.same_as.has_value() || i == 0 || !model.sole_process.empty()) continue;
    model.process = ProcessName(model.name);
    const auto [at, is_new] = owners.emplace("process " + model.process, model.name);
    if (!is_new) {
      return absl::InvalidArgumentError(
          fmt::format("the processes of {} and {} would have the same names: give one of them a name that "
                      "differs in letters or digits",
                      at->second, model.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModelFlags(const ModelFlags& flags) {
  if (flags.folders.empty() && flags.file.empty())
    return absl::InvalidArgumentError("there is no model to serve: give --model or --models");
  if (flags.folders.empty() && (!flags.names.empty() || !flags.output_format.empty())) {
    return absl::InvalidArgumentError("--model-name and --output-format are of --model, which is missing");
  }
  if (flags.folders.size() > 1 && !flags.names.empty() && flags.names.size() != flags.folders.size()) {
    return absl::InvalidArgumentError(fmt::format(
        "--model-name is given {} times, and --model {}: give each model its name, or more than one "
        "name to a single model",
        flags.names.size(), flags.folders.size()));
  }
  if (flags.folders.size() > 1 && !flags.output_format.empty()) {
    return absl::InvalidArgumentError(
        "--output-format is of a single --model: say \"output_format\" of each model in --models");
  }
  for (size_t i = 1; flags.folders.size() == 1 && i < flags.names.size(); ++i) {
    if (flags.names[i].empty()) return absl::InvalidArgumentError("--model-name is empty: leave it out");
  }
  // They stand in JSON.
  for (const auto* texts : {&flags.folders, &flags.names}) {
    for (const std::string& text : *texts) {
      if (!text::IsUtf8(text))
        return absl::InvalidArgumentError("a folder or a name of a model is not UTF-8: rename it");
    }
  }
  return text::IsUtf8(flags.classifier)
             ? absl::OkStatus()
             : absl::InvalidArgumentError("the folder of --moderation-model is not UTF-8: rename it");
}

absl::Status CheckWorkerFlags(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (!SetByPlace().contains(FlagName(argument))) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} is the same for all workers, or set for each by `baton serve`: leave it out",
                    FlagName(argument)));
  }
  return absl::OkStatus();
}

absl::StatusOr<ServedModels> ReadServedModels(const ModelFlags& flags) {
  ServedModels served;
  TakeFlags(flags, &served);
  if (!flags.file.empty()) BATON_RETURN_IF_ERROR(ReadFile(flags, &served));
  if (!flags.classifier.empty()) {
    ServedModel model{
        .folder = flags.classifier, .name = NameAtPath(flags.classifier), .sole_process = kModeratorName};
    model.entry = {{"folder", model.folder}, {"name", model.name}, {"classifier", "auto"}};
    BeSmallClassifier(&model);
    served.models.push_back(std::move(model));
  }
  for (const ServedModel& model : served.models) BATON_RETURN_IF_ERROR(model::CheckModelPath(model.folder));
  BATON_RETURN_IF_ERROR(NameProcesses(&served));
  return served;
}

std::vector<ServedWorker> WorkersOf(const std::vector<ServedModel>& models) {
  std::vector<ServedWorker> workers;
  const auto add = [&](size_t place, bool decode, bool sole) {
    const ServedModel& model = models[place];
    if (model.same_as.has_value() || model.sole_process.empty() == sole) return;
    const char* const role = decode ? "decode" : "prefill";
    for (int i = 0; i < (decode ? model.decode : model.prefill); ++i) {
      std::string name = model.process.empty() ? fmt::format("{}-{}", role, i)
                                               : fmt::format("{}-{}-{}", role, model.process, i);
      workers.push_back({place, decode, static_cast<size_t>(i), sole ? model.sole_process : std::move(name)});
    }
  };
  for (const bool decode : {false, true}) {
    for (size_t place = 0; place < models.size(); ++place) add(place, decode, /*sole=*/false);
  }
  for (size_t place = 0; place < models.size(); ++place) add(place, /*decode=*/true, /*sole=*/true);
  return workers;
}

}  // namespace baton::cli
