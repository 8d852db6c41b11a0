#include "tests/bench/speculation/texts.h"

#include <utility>

#include "absl/strings/str_replace.h"

namespace baton::bench {
namespace {

constexpr char kFile[] = R"(class Shelf:
    """Boxes on a shelf of one room."""

    def __init__(self, room, width):
        self.room = room
        self.width = width
        self.boxes = []

    def used(self):
        return sum(box.width for box in self.boxes)

    def free(self):
        return self.width - self.used()

    def put(self, box):
        if box.width > self.free():
            raise ValueError("no room for box " + box.label)
        self.boxes.append(box)
        return len(self.boxes) - 1

    def take(self, label):
        for index, box in enumerate(self.boxes):
            if box.label == label:
                return self.boxes.pop(index)
        raise KeyError(label)

    def find(self, label):
        for box in self.boxes:
            if box.label == label:
                return box
        return None

    def report(self):
        lines = ["shelf in " + self.room]
        for box in self.boxes:
            lines.append("  " + box.label + " " + str(box.width))
        lines.append("  free " + str(self.free()))
        return "\n".join(lines)
)";

std::string Edited() {
  return absl::StrReplaceAll(
      kFile,
      {{"def __init__(self, room, width):\n        self.room = room\n",
        "def __init__(self, room, width, limit=64):\n        self.room = room\n        self.limit = limit\n"},
       {"        self.boxes.append(box)\n",
        "        if len(self.boxes) >= self.limit:\n            raise ValueError(\"too many boxes\")\n       "
        " self.boxes.append(box)\n"},
       {"lines = [\"shelf in \" + self.room]",
        "lines = [\"shelf in \" + self.room + \", limit \" + str(self.limit)]"}});
}

constexpr char kAgentPrompt[] =
    R"(You keep a warehouse. Tools: list_shelf(room, shelf), move_box(box, from_room, from_shelf, to_room, to_shelf), weigh(box).
User: Move everything that weighs more than ten kilograms from shelf 3 of the north room to shelf 1 of the south room.
)";

std::string Call(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>\n";
}
std::string Weigh(const std::string& box) { return Call("weigh", "{\"box\": \"" + box + "\"}"); }
std::string Move(const std::string& box) {
  return Call("move_box", "{\"box\": \"" + box +
                              "\", \"from_room\": \"north\", \"from_shelf\": 3, \"to_room\": \"south\", "
                              "\"to_shelf\": 1}");
}
std::string Weighs(const std::string& box, const std::string& kilograms) {
  return "Result: {\"box\": \"" + box + "\", \"kilograms\": " + kilograms + "}\n";
}

std::vector<Turn> AgentTurns() {
  const std::pair<std::string, std::string> boxes[] = {{"lamp-117", "4.5"},  {"press-204", "31.0"},
                                                       {"cable-033", "7.2"}, {"motor-561", "18.4"},
                                                       {"paint-090", "9.9"}, {"drill-442", "12.6"}};
  std::vector<Turn> turns = {{kAgentPrompt, Call("list_shelf", R"({"room": "north", "shelf": 3})")}};
  std::string result =
      "Result: {\"boxes\": [\"lamp-117\", \"press-204\", \"cable-033\", \"motor-561\", \"paint-090\", "
      "\"drill-442\"]}\n";
  for (const auto& [box, kilograms] : boxes) {
    turns.push_back({result, Weigh(box)});
    result = Weighs(box, kilograms);
    if (std::stod(kilograms) <= 10) continue;
    turns.push_back({result, Move(box)});
    result = "Result: {\"moved\": \"" + box + "\"}\n";
  }
  turns.push_back({result,
                   "Everything that weighs more than ten kilograms is on shelf 1 of the south room now: "
                   "press-204, motor-561 and drill-442.\n"});
  return turns;
}

constexpr char kDocument[] =
    R"(The mill at Hollow Ford was built in 1784 by Thomas Arkley, who had learnt his trade in the valley of the Wren. For forty years it ground the corn of nine villages, and the road that leads to it is still called Corn Lane. When the railway came in 1851 the villages sent their corn to the steam mills of the town, and the wheel at Hollow Ford stood still for the first time. Arkley's grandson sold the building to a maker of paper, who put in two new wheels and a drying loft. The paper mill burned in the dry summer of 1868; the walls remained, and for a long time nobody knew what to do with them. In 1903 the parish bought the ruin for the price of its stones. A teacher, Ellen Marsh, asked to keep her collection of fossils there, and the parish put a roof over the eastern half. Her collection grew into the museum of the valley of the Wren, which opened its doors in May 1911. Visitors could see the fossils, the old millstones, and a model of the drying loft that the pupils of the school had built. During the war the museum was closed, and the fossils were stored in the cellar of the church. It opened again in 1947 with a second room, in which the history of the nine villages was shown. Today the museum has four rooms and some twelve thousand visitors a year. One of the two wheels has been repaired and turns on Sundays; it drives a small generator that lights the room with the fossils.
)";
constexpr char kSummary[] =
    R"(The mill at Hollow Ford was built in 1784 by Thomas Arkley and ground the corn of nine villages for forty years. After the railway came in 1851 it lost its work to the steam mills of the town and became a paper mill, which burned in the dry summer of 1868. In 1903 the parish bought the ruin, and Ellen Marsh, a teacher, kept her collection of fossils there. It grew into the museum of the valley of the Wren, which opened in May 1911, was closed during the war, and opened again in 1947. Today it has four rooms and some twelve thousand visitors a year, and one of the wheels turns on Sundays and lights the room with the fossils.
)";

constexpr char kQuestion[] =
    "I want to begin to run, but after ten minutes I am always out of breath. What should I do?\n";
constexpr char kAdvice[] =
    R"(Start slower than feels necessary. Most beginners run at a pace that their legs can manage and their lungs cannot, so the first change is to jog so gently that you could still hold a conversation. Mix walking into it: two minutes of easy jogging, one minute of brisk walking, repeated six or seven times, three days each week. After a fortnight lengthen the running parts a little and leave the breaks as they are. Breathe deeply from your belly and let your shoulders hang loose; counting steps helps some people find a rhythm. Give yourself rest days, because hearts and tendons grow stronger between sessions, not during them. If you notice chest pain, dizziness, or wheezing that does not go away, talk to a doctor before continuing. Within two months half an hour without stopping is a realistic goal for nearly everybody.
)";

}  // namespace

const std::vector<Work>& AllWork() {
  static const auto* const work = new std::vector<Work>{
      {"edit",
       {{std::string("Add a limit on the number of boxes to this file and print all of it.\n") + kFile +
             "---\n",
         Edited()}}},
      {"agent", AgentTurns()},
      {"summary", {{std::string(kDocument) + "Summarise the text above.\n", kSummary}}},
      {"chat", {{kQuestion, kAdvice}}}};
  return *work;
}

}  // namespace baton::bench
