// LineEditor: lines that a person types on a terminal, with the keys that are usual in shells (by
// libedit): editing, the lines of this session with the arrow keys and Ctrl-R, a paste of several lines as
// one text, lines of any length. The terminal is its own from beginning to end, so what is typed while an
// answer is being written waits for the next prompt, whole and unseen. One at a time, main thread; make it
// before other threads start. It refuses terminals that can't move their cursor (Usable).
#pragma once

#include <histedit.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "cli/chat/line_reader.h"
#include "cli/chat/terminal_hold.h"
#include "cli/show/terminal.h"

namespace baton::cli {

class LineEditor {
 public:
  // True if standard input and output are terminals that a line can be edited on.
  static bool Usable();

  // Standard input and output; the prompt "> " as `terminal` can show it. Takes characters as UTF-8 if the
  // locale says nothing else.
  explicit LineEditor(const Terminal& terminal);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Waits for a line: UTF-8, without its line break, with line breaks inside if it was pasted so or Alt-Enter
  // was typed. kEnd: Ctrl-D on an empty line, or the terminal has gone. kInterrupt: `interrupt_fd` became
  // readable, and `line` is what was given up.
  LineReader::Event Next(int interrupt_fd, std::string* line);

 private:
  struct FreeEditor {
    void operator()(EditLine* editor) const { el_end(editor); }
  };
  struct FreeHistory {
    void operator()(HistoryW* history) const { history_wend(history); }
  };

  static LineEditor& Of(EditLine* editor);
  static wchar_t* Prompt(EditLine* editor);
  static int ReadCharacter(EditLine* editor, wchar_t* character);
  // Actions of keys; the result says what libedit has to draw.
  using Function = unsigned char (*)(EditLine*, wint_t);
  static unsigned char Paste(EditLine* editor, wint_t key);
  static unsigned char BreakLine(EditLine* editor, wint_t key);
  static unsigned char Up(EditLine* editor, wint_t key);
  static unsigned char Down(EditLine* editor, wint_t key);
  static unsigned char Left(EditLine* editor, wint_t key);
  static unsigned char Right(EditLine* editor, wint_t key);
  static unsigned char Home(EditLine* editor, wint_t key);
  static unsigned char End(EditLine* editor, wint_t key);
  static unsigned char WordLeft(EditLine* editor, wint_t key);
  static unsigned char WordRight(EditLine* editor, wint_t key);
  static unsigned char MoveTo(EditLine* editor, size_t target);

  void Bind(const wchar_t* name, Function function, std::initializer_list<const wchar_t*> keys);
  // Another byte of input; false: interrupted, or the end.
  bool ReadByte(char* byte);
  // Shows the entry `age` back in the history; 0 is what was typed before looking there. False: there is
  // none.
  bool Recall(int age);
  std::wstring Text() const;
  void SetText(const std::wstring& text);

  const std::wstring prompt_;
  TerminalHold hold_;
  std::unique_ptr<EditLine, FreeEditor> editor_;
  std::unique_ptr<HistoryW, FreeHistory> history_;
  // Bytes that were read ahead.
  std::string input_;
  size_t taken_ = 0;
  int interrupt_fd_ = -1;
  bool interrupted_ = false;
  bool ended_ = false;
  // How far back in the history the line on screen is, and what was typed before.
  int age_ = 0;
  std::wstring draft_;
};

}  // namespace baton::cli
