/* A program in C: the text of a graph, compiled here and run. Usage: c_graph [DEVICE] */
#include <braze/c_compile.h>
#include <stdio.h>
#include <string.h>

static const char text[] =
    "braze 1 graph\n"
    "symbol n: 1..1024\n"
    "graph @softplus(%x: f32[n], %bias: f32[]) {\n"
    "  %b = broadcast %bias {axes: []} : f32[n]\n"
    "  %z = add %x, %b : f32[n]\n"
    "  %y = softplus %z : f32[n]\n"
    "  return %y as \"y\"\n"
    "}\n";

static void print_log(void* user, braze_log_level level, const char* line) {
  (void)level;
  fprintf(stderr, "%s: %s\n", (const char*)user, line);
}

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, braze_last_error());
  return 1;
}

int main(int argc, char** argv) {
  const char* const device = argc > 1 ? argv[1] : "cpu";
  braze_config config = {sizeof(config)};
  braze_function* softplus = NULL;
  braze_array *x = NULL, *bias = NULL, *y = NULL;
  const braze_array* arguments[2];
  const int64_t extent = 5;
  const float values[5] = {-100, -1, 0, 1, 100}, one = 1;
  float results[5] = {0};
  size_t i;

  config.log = print_log;
  config.log_user = (void*)"c_graph";
  if (braze_configure(&config) != BRAZE_OK) return fail("configure");

  /* A mistake names its line, and has a code for the program. */
  if (braze_function_compile("braze 1 graph\ngraph @f(%x: f32[4]) {\n  return %y\n}\n",
                             "wrong.braze", NULL, device, &softplus) != BRAZE_INVALID_ARGUMENT)
    return fail("a wrong text compiles");
  printf("as expected: %s\n", braze_last_error());
  if (!strstr(braze_last_error(), "wrong.braze:3") || braze_last_error_code()[0] == '\0')
    return fail("the error does not name the line");

  if (braze_function_compile(text, "softplus.braze", NULL, device, &softplus) != BRAZE_OK)
    return fail("compile");
  printf("@%s on %s:\n", braze_function_name(softplus), braze_function_device(softplus));
  for (i = 0; i < braze_function_inputs(softplus); ++i)
    printf("  takes %s: %s\n", braze_function_input_name(softplus, i),
           braze_function_input_type(softplus, i));
  for (i = 0; i < braze_function_outputs(softplus); ++i)
    printf("  gives %s: %s\n", braze_function_output_name(softplus, i),
           braze_function_output_type(softplus, i));

  if (braze_array_from_host(BRAZE_F32, 1, &extent, values, device, &x) != BRAZE_OK ||
      braze_array_from_host(BRAZE_F32, 0, NULL, &one, device, &bias) != BRAZE_OK)
    return fail("arrays");
  arguments[0] = x;
  arguments[1] = bias;
  if (braze_run(softplus, arguments, 2, &y, 1) != BRAZE_OK) return fail("run");
  if (braze_array_to_host(y, results, sizeof(results)) != BRAZE_OK) return fail("result");
  for (i = 0; i < 5; ++i) printf("softplus(%g + 1) = %g\n", values[i], results[i]);

  braze_array_release(x);
  braze_array_release(bias);
  braze_array_release(y);
  braze_function_release(softplus);
  /* log(1 + e^0), and what is large enough is itself */
  return results[1] > 0.693146f && results[1] < 0.693148f && results[4] == 101 ? 0 : 1;
}
