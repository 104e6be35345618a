#include "sessions/openvino_api.h"

#include <tvm/ffi/error.h>

#include <string>

namespace collage::sessions::ov {
namespace {

// The text of a message of OpenVINO, without the lines that name a place in its sources.
std::string FirstLines(const std::string& text) {
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const std::string line = text.substr(begin, end - begin);
    if (!line.empty() && line.rfind("Exception from ", 0) != 0 && line.rfind("Check '", 0) != 0)
      kept += (kept.empty() ? "" : " ") + line;
    begin = end + 1;
  }
  return kept.empty() ? text : kept;
}

}  // namespace

Api::Api(const SharedLibrary& library) {
  library.Find("ov_get_openvino_version", &get_version);
  library.Find("ov_version_free", &free_version);
  library.Find("ov_get_last_err_msg", &get_last_error);
  library.Find("ov_get_error_info", &get_error_info);
  library.Find("ov_free", &free_text);
  library.Find("ov_core_create", &create_core);
  library.Find("ov_core_read_model_from_memory_buffer", &read_model);
  library.Find("ov_model_free", &free_model);
  library.Find("ov_core_compile_model", &compile_model);
  library.Find("ov_compiled_model_free", &free_compiled);
  library.Find("ov_compiled_model_inputs_size", &count_inputs);
  library.Find("ov_compiled_model_input_by_name", &find_input);
  library.Find("ov_output_const_port_free", &free_port);
  library.Find("ov_compiled_model_create_infer_request", &create_request);
  library.Find("ov_infer_request_free", &free_request);
  library.Find("ov_infer_request_set_tensor_by_const_port", &set_input);
  library.Find("ov_infer_request_set_output_tensor_by_index", &set_output);
  library.Find("ov_infer_request_get_output_tensor_by_index", &get_output);
  library.Find("ov_infer_request_infer", &infer);
  library.Find("ov_tensor_create_from_host_ptr", &borrow);
  library.Find("ov_tensor_get_shape", &get_shape);
  library.Find("ov_tensor_get_element_type", &get_type);
  library.Find("ov_tensor_data", &get_data);
  library.Find("ov_shape_free", &free_shape);
  library.Find("ov_tensor_free", &free_tensor);
}

const Api& TheApi() {
  static const Api* api = new Api(SharedLibrary::Mapped("libopenvino_c.so"));
  return *api;
}

void Check(int status) {
  if (status == 0) return;
  const Api& api = TheApi();
  const char* message = api.get_last_error();
  std::string reason = message == nullptr ? "" : FirstLines(message);
  if (message != nullptr) api.free_text(message);
  if (reason.empty()) reason = api.get_error_info(status);
  TVM_FFI_THROW(RuntimeError) << "OpenVINO: " << reason;
}

}  // namespace collage::sessions::ov
