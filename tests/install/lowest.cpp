#include <focus/autograd/ops.h>
#include <focus/version.h>

static_assert(FOCUS_VERSION_MAJOR == 0);

int main() {
  focus::Variable x = focus::Tensor::full({2, 3}, 2);
  x.set_requires_grad(true);
  backward(multiply(x, x));
  return x.grad().data()[0] == 4 ? 0 : 1;
}
