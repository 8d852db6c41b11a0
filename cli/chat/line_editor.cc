#include "cli/chat/line_editor.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <cwctype>
#include <utility>

#include "common/base/check.h"

namespace baton::cli {
namespace {

constexpr int kHistoryLines = 1000;
// The end of libedit's variadic arguments.
constexpr wchar_t* kNoMore = nullptr;
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

// wchar_t is UTF-32 here.
std::string ToUtf8(std::wstring_view text) {
  std::string utf8;
  for (const wchar_t character : text) {
    const auto code = static_cast<uint32_t>(character);
    const auto tail = [&](int shift) { utf8.push_back(static_cast<char>(0x80 | (code >> shift & 0x3F))); };
    if (code < 0x80) {
      utf8.push_back(static_cast<char>(code));
    } else if (code < 0x800) {
      utf8.push_back(static_cast<char>(0xC0 | code >> 6));
      tail(0);
    } else if (code < 0x10000) {
      utf8.push_back(static_cast<char>(0xE0 | code >> 12));
      tail(6);
      tail(0);
    } else {
      utf8.push_back(static_cast<char>(0xF0 | code >> 18));
      tail(12);
      tail(6);
      tail(0);
    }
  }
  return utf8;
}

// Keeps a paste's text, tabs and line breaks. Terminals send line breaks as CR, LF or both.
std::wstring Clean(std::wstring_view pasted) {
  std::wstring text;
  for (size_t i = 0; i < pasted.size(); ++i) {
    const wchar_t character = pasted[i];
    if (character == L'\n' || character == L'\r') {
      if (character == L'\r' && i + 1 < pasted.size() && pasted[i + 1] == L'\n') ++i;
      text.push_back(L'\n');
    } else if (character == L'\t' || (character >= L' ' && character != 0x7F)) {
      text.push_back(character);
    }
  }
  // Whoever copies whole lines means none below them.
  while (!text.empty() && text.back() == L'\n') text.pop_back();
  return text;
}

// Where the line that holds `at` begins.
size_t LineStart(std::wstring_view text, size_t at) {
  const size_t before = at == 0 ? std::wstring_view::npos : text.rfind(L'\n', at - 1);
  return before == std::wstring_view::npos ? 0 : before + 1;
}

size_t LineEnd(std::wstring_view text, size_t at) { return std::min(text.find(L'\n', at), text.size()); }

}  // namespace

bool LineEditor::Usable() {
  const char* const type = std::getenv("TERM");
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && type != nullptr &&
         std::string_view(type) != "" && std::string_view(type) != "dumb";
}

LineEditor::LineEditor(const Terminal& terminal)
    // A prompt's invisible parts stand between two \1.
    : prompt_(terminal.colour ? L"\1\x1b[36m\1>\1\x1b[0m\1 " : L"> "), hold_(STDIN_FILENO) {
  // Without a locale the terminal speaks UTF-8 all the same, as the model does.
  if (MB_CUR_MAX == 1 && std::string_view(std::setlocale(LC_CTYPE, nullptr)) == "C") {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
  editor_.reset(el_init("baton", stdin, stdout, stderr));
  history_.reset(history_winit());
  BATON_CHECK(editor_ != nullptr && history_ != nullptr);
  EditLine* const editor = editor_.get();
  HistEventW event;
  history_w(history_.get(), &event, H_SETSIZE, kHistoryLines);
  history_w(history_.get(), &event, H_SETUNIQUE, 1);
  el_wset(editor, EL_CLIENTDATA, this);
  el_wset(editor, EL_PROMPT_ESC, &LineEditor::Prompt, L'\1');
  el_wset(editor, EL_EDITOR, L"emacs");
  el_wset(editor, EL_HIST, history_w, history_.get());
  el_wset(editor, EL_GETCFN, &LineEditor::ReadCharacter);
  // Between two lines too: else the kernel would cut what is typed then at 4,095 bytes, and show it in the
  // midst of an answer.
  el_wset(editor, EL_SETTY, L"-x", L"-icanon", L"-echo", L"-icrnl", L"-inlcr", kNoMore);
  // And line breaks stay as they were sent: CR by the Enter key, CR, LF or both by pastes.
  el_wset(editor, EL_SETTY, L"-d", L"-icrnl", L"-inlcr", kNoMore);

  Bind(L"baton-paste", &LineEditor::Paste, {L"^[[200~"});
  Bind(L"baton-break-line", &LineEditor::BreakLine, {L"^[^M", L"^[^J"});
  // libedit has all of these. But its own keep 1,024 characters of what was typed before one looks into the
  // history, know no lines within the text, and lose the cursor, in the end in foreign memory, where a text
  // has more lines than the screen (CC_CURSOR; CC_REFRESH draws the text again and is right).
  Bind(L"baton-up", &LineEditor::Up, {L"^[[A", L"^[OA", L"^P"});
  Bind(L"baton-down", &LineEditor::Down, {L"^[[B", L"^[OB", L"^N"});
  Bind(L"baton-left", &LineEditor::Left, {L"^[[D", L"^[OD", L"^B"});
  Bind(L"baton-right", &LineEditor::Right, {L"^[[C", L"^[OC", L"^F"});
  Bind(L"baton-home", &LineEditor::Home, {L"^[[H", L"^[OH", L"^[[1~", L"^[[7~", L"^A"});
  Bind(L"baton-end", &LineEditor::End, {L"^[[F", L"^[OF", L"^[[4~", L"^[[8~", L"^E"});
  Bind(L"baton-word-left", &LineEditor::WordLeft, {L"^[b", L"^[B", L"^[[1;5D", L"^[[1;3D"});
  Bind(L"baton-word-right", &LineEditor::WordRight, {L"^[f", L"^[F", L"^[[1;5C", L"^[[1;3C"});
  el_wset(editor, EL_BIND, L"^[[3~", L"ed-delete-next-char", kNoMore);
  el_wset(editor, EL_BIND, L"-r", L"^X^X", kNoMore);
  el_wset(editor, EL_BIND, L"-r", L"^V", kNoMore);  // a line break by it would not be drawn as one
}

LineEditor::~LineEditor() = default;

void LineEditor::Bind(const wchar_t* name, Function function, std::initializer_list<const wchar_t*> keys) {
  el_wset(editor_.get(), EL_ADDFN, name, /*help=*/name, function);
  for (const wchar_t* const key : keys) el_wset(editor_.get(), EL_BIND, key, name, kNoMore);
}

LineReader::Event LineEditor::Next(int interrupt_fd, std::string* line) {
  interrupt_fd_ = interrupt_fd;
  interrupted_ = false;
  age_ = 0;
  int size = 0;
  const wchar_t* const typed = el_wgets(editor_.get(), &size);
  if (interrupted_) {
    *line = ToUtf8(Text());
    std::fputs("^C\n", stdout);
    return LineReader::Event::kInterrupt;
  }
  if (typed == nullptr || size <= 0) return LineReader::Event::kEnd;
  std::wstring text(typed, size);
  if (text.back() == L'\n') text.pop_back();
  HistEventW event;
  if (text.find_first_not_of(L" \t\n") != std::wstring::npos) {
    history_w(history_.get(), &event, H_ENTER, text.c_str());
  }
  *line = ToUtf8(text);
  return LineReader::Event::kLine;
}

LineEditor& LineEditor::Of(EditLine* editor) {
  void* self = nullptr;
  el_wget(editor, EL_CLIENTDATA, &self);
  return *static_cast<LineEditor*>(self);
}

wchar_t* LineEditor::Prompt(EditLine* editor) { return const_cast<wchar_t*>(Of(editor).prompt_.c_str()); }

bool LineEditor::ReadByte(char* byte) {
  while (taken_ == input_.size()) {
    if (interrupted_ || ended_) return false;
    const bool resized = hold_.Resized();
    if (resized) el_resize(editor_.get());
    // All of it again: libedit would write on from a row that a smaller terminal may not have.
    if (hold_.Resumed() || resized) {
      std::fputs("\r\x1b[J", stdout);
      el_wset(editor_.get(), EL_REFRESH);
    }
    pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;
    input_.clear();
    taken_ = 0;
    if (fds[1].revents != 0) {
      interrupted_ = true;
      return false;
    }
    char bytes[4096];
    const ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    ended_ = got <= 0;
    if (got > 0) input_.assign(bytes, got);
  }
  *byte = input_[taken_++];
  return true;
}

int LineEditor::ReadCharacter(EditLine* editor, wchar_t* character) {
  LineEditor& self = Of(editor);
  char bytes[MB_LEN_MAX];
  for (size_t size = 1; size <= sizeof(bytes); ++size) {
    if (!self.ReadByte(&bytes[size - 1])) return 0;
    std::mbstate_t state = {};
    const size_t used = std::mbrtowc(character, bytes, size, &state);
    if (used == static_cast<size_t>(-2)) continue;
    if (used == static_cast<size_t>(-1)) {
      *character = 0xFFFD;
      if (size > 1) --self.taken_;  // the byte that does not belong may begin another character
    }
    return 1;
  }
  *character = 0xFFFD;
  return 1;
}

unsigned char LineEditor::Paste(EditLine* editor, wint_t) {
  std::wstring pasted;
  for (wchar_t character; el_wgetc(editor, &character) == 1;) {
    pasted.push_back(character);
    if (character != kPasteEnd.back() || pasted.size() < kPasteEnd.size()) continue;
    if (pasted.compare(pasted.size() - kPasteEnd.size(), kPasteEnd.size(), kPasteEnd) == 0) {
      pasted.resize(pasted.size() - kPasteEnd.size());
      break;
    }
  }
  const std::wstring text = Clean(pasted);
  if (!text.empty()) el_winsertstr(editor, text.c_str());
  return CC_REFRESH;
}

unsigned char LineEditor::BreakLine(EditLine* editor, wint_t) {
  return el_winsertstr(editor, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
}

unsigned char LineEditor::MoveTo(EditLine* editor, size_t target) {
  el_cursor(editor, static_cast<int>(target) - el_cursor(editor, 0));
  return CC_REFRESH;
}

unsigned char LineEditor::Up(EditLine* editor, wint_t) {
  LineEditor& self = Of(editor);
  const std::wstring text = self.Text();
  const size_t at = el_cursor(editor, 0);
  const size_t start = LineStart(text, at);
  if (start == 0) return self.Recall(self.age_ + 1) ? CC_REFRESH : CC_ERROR;
  return MoveTo(editor, std::min(LineStart(text, start - 1) + (at - start), start - 1));
}

unsigned char LineEditor::Down(EditLine* editor, wint_t) {
  LineEditor& self = Of(editor);
  const std::wstring text = self.Text();
  const size_t at = el_cursor(editor, 0);
  const size_t end = LineEnd(text, at);
  if (end == text.size()) return self.Recall(self.age_ - 1) ? CC_REFRESH : CC_ERROR;
  return MoveTo(editor, std::min(end + 1 + (at - LineStart(text, at)), LineEnd(text, end + 1)));
}

unsigned char LineEditor::Left(EditLine* editor, wint_t) {
  const size_t at = el_cursor(editor, 0);
  return at == 0 ? CC_ERROR : MoveTo(editor, at - 1);
}

unsigned char LineEditor::Right(EditLine* editor, wint_t) {
  const size_t at = el_cursor(editor, 0);
  return at == Of(editor).Text().size() ? CC_ERROR : MoveTo(editor, at + 1);
}

unsigned char LineEditor::Home(EditLine* editor, wint_t) {
  return MoveTo(editor, LineStart(Of(editor).Text(), el_cursor(editor, 0)));
}

unsigned char LineEditor::End(EditLine* editor, wint_t) {
  return MoveTo(editor, LineEnd(Of(editor).Text(), el_cursor(editor, 0)));
}

unsigned char LineEditor::WordLeft(EditLine* editor, wint_t) {
  const std::wstring text = Of(editor).Text();
  size_t at = el_cursor(editor, 0);
  while (at > 0 && std::iswalnum(text[at - 1]) == 0) --at;
  while (at > 0 && std::iswalnum(text[at - 1]) != 0) --at;
  return MoveTo(editor, at);
}

unsigned char LineEditor::WordRight(EditLine* editor, wint_t) {
  const std::wstring text = Of(editor).Text();
  size_t at = el_cursor(editor, 0);
  while (at < text.size() && std::iswalnum(text[at]) == 0) ++at;
  while (at < text.size() && std::iswalnum(text[at]) != 0) ++at;
  return MoveTo(editor, at);
}

bool LineEditor::Recall(int age) {
  if (age < 0) return false;
  if (age_ == 0) draft_ = Text();
  if (age == 0) {
    SetText(draft_);
  } else {
    HistEventW event;
    int found = history_w(history_.get(), &event, H_FIRST);
    for (int i = 1; i < age && found == 0; ++i) found = history_w(history_.get(), &event, H_NEXT);
    if (found != 0) return false;
    SetText(event.str);
  }
  age_ = age;
  return true;
}

std::wstring LineEditor::Text() const {
  const LineInfoW* const line = el_wline(editor_.get());
  return {line->buffer, line->lastchar};
}

void LineEditor::SetText(const std::wstring& text) {
  EditLine* const editor = editor_.get();
  if (text.empty()) {
    // To replace a text by nothing is refused.
    const int size = static_cast<int>(Text().size());
    el_cursor(editor, size);
    el_deletestr(editor, size);
    return;
  }
  el_wreplacestr(editor, text.c_str());
  el_cursor(editor, static_cast<int>(text.size()));
}

}  // namespace baton::cli
