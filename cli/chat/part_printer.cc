#include "cli/chat/part_printer.h"

#include <fmt/format.h>

namespace baton::cli {

PartPrinter::Shown PartPrinter::Show(const v1::Delta& delta) {
  Shown shown;
  if (delta.parts().empty()) {
    shown.out = delta.text();
    return shown;
  }
  for (const v1::PartEvent& event : delta.parts()) {
    switch (event.event_case()) {
      case v1::PartEvent::kStart:
        if (line_begun_ && (kind_ == v1::PartStart::KIND_TOOL_CALL ||
                            event.start().kind() == v1::PartStart::KIND_TOOL_CALL)) {
          shown.out += '\n';
          line_begun_ = false;
        }
        kind_ = event.start().kind();
        thought_shown_ = false;
        if (kind_ != v1::PartStart::KIND_TOOL_CALL) break;
        shown.out += Paint(out_, Style::kCyan, fmt::format("call {} ", event.start().name()));
        line_begun_ = true;
        break;
      case v1::PartEvent::kText:
        if (kind_ == v1::PartStart::KIND_THINKING) {
          shown.err += Paint(err_, Style::kDim, event.text());
          thought_shown_ = true;
        } else {
          shown.out += event.text();
          line_begun_ = !shown.out.ends_with('\n');
        }
        break;
      case v1::PartEvent::kArgumentsJson:
        shown.out += event.arguments_json();
        break;
      case v1::PartEvent::kEnd:
        if (thought_shown_) shown.err += "\n";
        if (kind_ == v1::PartStart::KIND_TOOL_CALL && !event.end().complete()) {
          shown.err += "(this call is not complete)\n";
        }
        break;
      case v1::PartEvent::EVENT_NOT_SET:
        break;
    }
  }
  return shown;
}

}  // namespace baton::cli
