#include "text/output/output_format.h"

#include <algorithm>

namespace baton::output {
namespace {

constexpr OutputFormat kFormats[] = {
    {.name = "hermes",
     .layout = Layout::kObject,
     .think_open = "<think>",
     .think_close = "</think>",
     .think_cut = "\n</think>\n\n",
     .call_open = "<tool_call>",
     .call_close = "</tool_call>"},
    {.name = "qwen3_coder",
     .layout = Layout::kTagged,
     .think_open = "<think>",
     .think_close = "</think>",
     .think_cut = "\n</think>\n\n",
     .call_open = "<tool_call>",
     .call_close = "</tool_call>",
     .name_open = "<function=",
     .name_close = ">",
     .key_open = "<parameter=",
     .key_close = ">",
     .value_close = "</parameter>",
     .end = "</function>",
     .bare_name = true},
    {.name = "glm",
     .layout = Layout::kTagged,
     .think_open = "<think>",
     .think_close = "</think>",
     .think_cut = "\n</think>\n\n",
     .call_open = "<tool_call>",
     .call_close = "</tool_call>",
     .key_open = "<arg_key>",
     .key_close = "</arg_key>",
     .value_open = "<arg_value>",
     .value_close = "</arg_value>"},
    {.name = "mistral_v11",
     .layout = Layout::kNamed,
     .think_open = "[THINK]",
     .think_close = "[/THINK]",
     .think_cut = "[/THINK]",
     .call_open = "[TOOL_CALLS]",
     .id_letters = 9,
     .separator = "[ARGS]",
     .id_separator = "[CALL_ID]"},
    {.name = "mistral",
     .layout = Layout::kList,
     .think_open = "[THINK]",
     .think_close = "[/THINK]",
     .think_cut = "[/THINK]",
     .call_open = "[TOOL_CALLS]",
     .id_letters = 9},
    {.name = "deepseek_v3",
     .layout = Layout::kNamed,
     .think_open = "<think>",
     .think_close = "</think>",
     .think_cut = "\n</think>\n\n",
     .section_open = "<｜tool▁calls▁begin｜>",
     .section_close = "<｜tool▁calls▁end｜>",
     .call_open = "<｜tool▁call▁begin｜>",
     .call_close = "<｜tool▁call▁end｜>",
     .kind = "function",
     .kind_separator = "<｜tool▁sep｜>",
     .separator = "\n",
     .fence_open = "```json",
     .fence_close = "```"},
    {.name = "deepseek_v31",
     .layout = Layout::kNamed,
     .think_open = "<think>",
     .think_close = "</think>",
     .think_cut = "\n</think>\n\n",
     .section_open = "<｜tool▁calls▁begin｜>",
     .section_close = "<｜tool▁calls▁end｜>",
     .call_open = "<｜tool▁call▁begin｜>",
     .call_close = "<｜tool▁call▁end｜>",
     .separator = "<｜tool▁sep｜>"},
    {.name = "kimi_k2",
     .layout = Layout::kNamed,
     .think_open = "<think>",
     .think_close = "</think>",
     .think_cut = "\n</think>\n\n",
     .section_open = "<|tool_calls_section_begin|>",
     .section_close = "<|tool_calls_section_end|>",
     .call_open = "<|tool_call_begin|>",
     .call_close = "<|tool_call_end|>",
     .separator = "<|tool_call_argument_begin|>",
     .header_is_id = true},
    {.name = "harmony",
     .layout = Layout::kNamed,
     .think_cut = "<|end|><|start|>assistant<|channel|>final<|message|>",
     .separator = "<|message|>",
     .channels = true},
    {.name = "llama3_json",
     .layout = Layout::kObject,
     .section_open = "<|python_tag|>",
     .arguments_key = "parameters",
     .bare = '{'},
    {.name = "pythonic",
     .layout = Layout::kPython,
     .section_open = "<|python_start|>",
     .section_close = "<|python_end|>",
     .bare = '['},
    {.name = "none"},
};

}  // namespace

std::span<const OutputFormat> Formats() { return kFormats; }

const OutputFormat* FindFormat(std::string_view name) {
  const auto* const found = std::ranges::find(kFormats, name, &OutputFormat::name);
  return found == std::end(kFormats) ? nullptr : found;
}

bool OpensThinking(const OutputFormat& format, std::string_view prompt) {
  prompt = prompt.substr(0, prompt.find_last_not_of(" \t\r\n") + 1);
  return !format.think_open.empty() && prompt.ends_with(format.think_open);
}

std::vector<std::string_view> Markers(const OutputFormat& format) {
  std::vector<std::string_view> markers;
  const auto add = [&](std::string_view marker) {
    if (!marker.empty() && std::find(markers.begin(), markers.end(), marker) == markers.end()) {
      markers.push_back(marker);
    }
  };
  for (const std::string_view marker :
       {format.think_open, format.think_close, format.section_open, format.section_close, format.call_open,
        format.call_close, format.kind_separator, format.id_separator, format.name_open, format.key_open,
        format.value_open, format.value_close}) {
    add(marker);
  }
  // Markers of one character, such as a line break or ">", are found where they are looked for.
  if (format.separator.size() > 1) add(format.separator);
  if (format.key_close.size() > 1) add(format.key_close);
  if (format.channels) {
    for (const std::string_view marker :
         {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|call|>", "<|end|>", "<|return|>"}) {
      add(marker);
    }
  }
  return markers;
}

}  // namespace baton::output
