// LayerStack: a model folder with the tokenizer of another model and its first layers: a smaller model that
// sometimes says the same, as a draft model does. Or all of its layers and others behind them that change
// nothing: a dearer model that says the same always. It goes with the object.
#pragma once

#include <filesystem>
#include <string>

namespace baton {

class LayerStack {
 public:
  // source: a folder with one model.safetensors. CHECK-fails where it is none.
  LayerStack(const std::string& source, int layers);
  ~LayerStack();
  LayerStack(const LayerStack&) = delete;
  LayerStack& operator=(const LayerStack&) = delete;
  std::string folder() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

}  // namespace baton
