// custom.cpp — nodes of other domains whose operator the host program has registered as a function.
#include <cmath>

#include "braze/custom_call.h"
#include "frontend/builder/builder.h"
#include "frontend/models/onnx/node.h"
#include "ir/support/json_string.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

// An attribute as JSON. A float has as many digits as are needed to read it back.
class AttributeText {
 public:
  AttributeText(const OnnxNode& node, const Attribute& attribute)
      : node_(node), attribute_(attribute) {}

  std::string value() const {
    using Kind = Attribute::Kind;
    switch (attribute_.kind) {
      case Kind::Float:
        return number(attribute_.real);
      case Kind::Int:
        return fmt::format("{}", attribute_.integer);
      case Kind::String:
        return json_string(attribute_.text);
      case Kind::Floats:
        return list(attribute_.reals, [this](float x) { return number(x); });
      case Kind::Ints:
        return list(attribute_.integers, [](int64_t x) { return fmt::format("{}", x); });
      case Kind::Strings:
        return list(attribute_.texts, [](const std::string& x) { return json_string(x); });
      default:
        node_.refuse(
            fmt::format("the attribute {} is neither a number nor a text nor a list of "
                        "them, so no function of the host program can get it",
                        quote(attribute_.name)));
    }
  }

 private:
  std::string number(float x) const {
    if (!std::isfinite(x))
      node_.refuse(fmt::format("the attribute {} is not finite", quote(attribute_.name)));
    return fmt::format("{}", x);
  }
  template <class List, class Text>
  static std::string list(const List& values, const Text& text) {
    return "[" + join(values, ", ", text) + "]";
  }

  const OnnxNode& node_;
  const Attribute& attribute_;
};

}  // namespace

Tensors called(OnnxNode& node, const std::string& function, const TensorType& result) {
  for (size_t i = 1; i < node.outputs(); ++i)
    if (node.wants(i)) node.refuse("it has several results, but a custom call has one");
  CustomCallOptions options;
  options.attributes =
      "{" +
      join(node.data().attributes, ", ",
           [&](const Attribute& attribute) {
             node.ignore(attribute.name);
             return json_string(attribute.name) + ": " + AttributeText(node, attribute).value();
           }) +
      "}";
  return {
      custom_call(function, node.all(), result.dtype, to_dims(result.shape), std::move(options))};
}

}  // namespace braze::onnx
