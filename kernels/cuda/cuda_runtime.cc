// The runtime on a card: CUDA's runtime, linked statically, and cuBLAS, which is loaded when a card
// is opened: its libraries are 600 MB, and a server without a card neither waits for them nor needs
// them.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cctype>
#include <climits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/runtime.h"

namespace attnd::kernels::cuda {
namespace {

// What cuBLAS's documentation recommends for sm_90. Of its own, so that products can be captured.
constexpr int64_t kBlasWorkspace = int64_t{32} << 20;

// Its header overloads the name.
using GemmStridedBatchedEx = cublasStatus_t (*)(
    cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k, const void* alpha,
    const void* a, cudaDataType, int lda, long long stride_a, const void* b, cudaDataType, int ldb,
    long long stride_b, const void* beta, void* c, cudaDataType, int ldc, long long stride_c,
    int batch, cublasComputeType_t, cublasGemmAlgo_t);

struct Blas {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  decltype(&cublasSetMathMode) set_math_mode = nullptr;
  GemmStridedBatchedEx gemm = nullptr;
  decltype(&cublasGetStatusString) status_string = nullptr;
};

template <typename F>
bool Load(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

// Stays loaded: its own threads may live as long as the process.
absl::StatusOr<Blas> LoadBlas() {
  const std::string name = absl::StrCat("libcublas.so.", CUBLAS_VER_MAJOR);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("cuBLAS cannot be loaded: ", dlerror()));
  }
  Blas blas;
  const bool all = Load(library, "cublasCreate_v2", &blas.create) &&
                   Load(library, "cublasDestroy_v2", &blas.destroy) &&
                   Load(library, "cublasSetStream_v2", &blas.set_stream) &&
                   Load(library, "cublasSetWorkspace_v2", &blas.set_workspace) &&
                   Load(library, "cublasSetMathMode", &blas.set_math_mode) &&
                   Load(library, "cublasGemmStridedBatchedEx", &blas.gemm) &&
                   Load(library, "cublasGetStatusString", &blas.status_string);
  if (!all) {
    return absl::FailedPreconditionError(absl::StrCat(name, " lacks a function: ", dlerror()));
  }
  return blas;
}

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kF32 ? CUDA_R_32F : dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

int Int(int64_t value) {
  Check(value >= 0 && value <= INT_MAX, "cuBLAS takes sizes of 32 bits");
  return static_cast<int>(value);
}

struct CudaGraph : Graph {
  explicit CudaGraph(cudaGraphExec_t instance) : exec(instance) {}
  ~CudaGraph() override { cudaGraphExecDestroy(exec); }
  cudaGraphExec_t exec;
};

class CudaRuntime : public Runtime {
 public:
  CudaRuntime(int index, DeviceProperties properties, const Blas& blas)
      : index_(index), properties_(std::move(properties)), blas_(blas) {}
  ~CudaRuntime() override {
    Bind();
    cudaStreamSynchronize(stream_.handle());
    if (handle_ != nullptr) {
      blas_.destroy(handle_);
    }
    cudaFree(workspace_);
    if (stream_.handle() != nullptr) {
      cudaStreamDestroy(stream_.handle());
    }
  }

  absl::Status Open();

  const DeviceProperties& properties() const override { return properties_; }
  Stream& stream() override { return stream_; }

  absl::StatusOr<void*> AllocateDevice(const char* purpose, int64_t bytes) override {
    Bind();
    void* memory = nullptr;
    return Allocated(cudaMalloc(&memory, static_cast<size_t>(bytes)), memory, purpose, bytes);
  }
  void FreeDevice(void* memory) override {
    Bind();
    stream_.Keep(cudaFree(memory));
  }
  absl::StatusOr<void*> AllocatePinned(const char* purpose, int64_t bytes) override {
    Bind();
    void* memory = nullptr;
    return Allocated(cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable),
                     memory, purpose, bytes);
  }
  void FreePinned(void* memory) override {
    Bind();
    stream_.Keep(cudaFreeHost(memory));
  }
  int64_t FreeBytes() override {
    Bind();
    size_t free = 0;
    size_t total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<int64_t>(free) : 0;
  }

  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    Copy(device, host, bytes, cudaMemcpyHostToDevice);
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    Copy(host, device, bytes, cudaMemcpyDeviceToHost);
  }
  void CopyOnDevice(void* to, const void* from, int64_t bytes) override {
    Copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void Zero(void* device, int64_t bytes) override {
    Bind();
    stream_.Keep(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), stream_.handle()));
  }
  absl::Status Synchronize() override {
    Bind();
    stream_.Keep(cudaStreamSynchronize(stream_.handle()));
    const std::string blas_error = std::exchange(blas_error_, "");
    const cudaError_t error = stream_.TakeError();
    if (error != cudaSuccess) {
      return absl::InternalError(
          absl::StrCat(cudaGetErrorName(error), ": ", cudaGetErrorString(error)));
    }
    return blas_error.empty() ? absl::OkStatus() : absl::InternalError(blas_error);
  }

  void Gemm(const GemmParams& params) override;
  std::unique_ptr<Graph> Capture(const std::function<void()>& work) override;
  void Run(const Graph& graph) override {
    Bind();
    stream_.Keep(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).exec, stream_.handle()));
  }

 private:
  // The device is a property of the calling thread. A batch begins with copies, so launches need
  // not ask.
  void Bind() { stream_.Keep(cudaSetDevice(index_)); }

  void Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    Bind();
    stream_.Keep(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_.handle()));
  }

  absl::StatusOr<void*> Allocated(cudaError_t error, void* memory, const char* purpose,
                                  int64_t bytes) {
    if (error == cudaSuccess) {
      return memory;
    }
    cudaGetLastError();  // an allocation that fails leaves the card usable
    return absl::ResourceExhaustedError(absl::StrCat(properties_.name, ": ", purpose, " needs ",
                                                     bytes, " bytes, ", FreeBytes(), " are free (",
                                                     cudaGetErrorString(error), ")"));
  }

  const int index_;
  const DeviceProperties properties_;
  const Blas blas_;
  Stream stream_{nullptr};
  cublasHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::string blas_error_;  // the first
};

absl::Status CudaRuntime::Open() {
  cudaStream_t stream = nullptr;
  if (cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      error != cudaSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat(properties_.name, " cannot be used: ", cudaGetErrorString(error)));
  }
  stream_ = Stream(stream);
  absl::StatusOr<void*> workspace = AllocateDevice("cuBLAS", kBlasWorkspace);
  if (!workspace.ok()) {
    return workspace.status();
  }
  workspace_ = *workspace;
  cublasStatus_t status = blas_.create(&handle_);
  // float32 is computed as such, and sums of 16-bit products in float32 throughout.
  const auto math = static_cast<cublasMath_t>(
      static_cast<unsigned>(CUBLAS_DEFAULT_MATH) |
      static_cast<unsigned>(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
  if (status == CUBLAS_STATUS_SUCCESS) status = blas_.set_stream(handle_, stream);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = blas_.set_workspace(handle_, workspace_, kBlasWorkspace);
  }
  if (status == CUBLAS_STATUS_SUCCESS) status = blas_.set_math_mode(handle_, math);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuBLAS on ", properties_.name, ": ", blas_.status_string(status)));
  }
  return absl::OkStatus();
}

// Row-major y = x Wᵀ is column-major yᵀ = W xᵀ, where W's rows are the columns of its transpose.
void CudaRuntime::Gemm(const GemmParams& p) {
  const float one = 1;
  const float zero = 0;
  const cudaDataType_t type = TypeOf(p.dtype);
  const cublasStatus_t status = blas_.gemm(
      handle_, CUBLAS_OP_T, CUBLAS_OP_N, Int(p.n), Int(p.rows), Int(p.k), &one, p.w, type,
      Int(p.w_row), p.w_batch, p.x, type, Int(p.x_row), p.x_batch, &zero, p.y, CUDA_R_32F,
      Int(p.y_row), p.y_batch, Int(p.batch), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS && blas_error_.empty()) {
    blas_error_ = absl::StrCat("cuBLAS: ", blas_.status_string(status), " for ", p.rows, " x ", p.n,
                               " x ", p.k);
  }
}

std::unique_ptr<Graph> CudaRuntime::Capture(const std::function<void()>& work) {
  Bind();
  if (cudaStreamBeginCapture(stream_.handle(), cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  // What failed before is still to be said by Synchronize().
  const cudaError_t earlier_error = stream_.TakeError();
  const std::string earlier_blas_error = std::exchange(blas_error_, "");
  work();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  const bool recorded = cudaStreamEndCapture(stream_.handle(), &graph) == cudaSuccess &&
                        blas_error_.empty() && cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess;
  if (graph != nullptr) {
    cudaGraphDestroy(graph);
  }
  if (!recorded) {
    // The same work is then launched as it is, and says what is wrong.
    stream_.TakeError();
    cudaGetLastError();
  }
  stream_.Keep(earlier_error);
  blas_error_ = earlier_blas_error;
  if (!recorded) {
    return nullptr;
  }
  return std::make_unique<CudaGraph>(exec);
}

std::string NameOf(int index, const char* name) {
  std::string clean = absl::StrCat("cuda:", index, ":");
  for (const char* c = name; *c != '\0'; ++c) {
    clean += std::isalnum(static_cast<unsigned char>(*c)) != 0 ? *c : '_';
  }
  return clean;
}

std::string Version(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

// How many cards there are.
absl::StatusOr<int> CountCards() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) {
    return count;
  }
  cudaGetLastError();
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (error == cudaErrorNoDevice) {
    return 0;
  }
  if (driver == 0) {
    return absl::NotFoundError("no NVIDIA driver answers on this machine");
  }
  if (error == cudaErrorInsufficientDriver) {
    return absl::FailedPreconditionError(absl::StrCat("the NVIDIA driver is for CUDA ",
                                                      Version(driver), "; this build needs ",
                                                      Version(CUDART_VERSION)));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the NVIDIA driver fails: ", cudaGetErrorString(error)));
}

// Machine code is there for 8.0 and 8.9, which run on every 8.x, and for 9.0 and 10.0 alone: what
// their kernels use has no successor.
bool HasCode(int major, int minor) {
  return major == 8 || ((major == 9 || major == 10) && minor == 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> OpenCudaRuntime(int index) {
  absl::StatusOr<int> count = CountCards();
  if (!count.ok()) {
    return count.status();
  }
  if (index >= *count) {
    return absl::NotFoundError(
        *count == 0 ? "this machine has no CUDA card"
                    : absl::StrCat("there is no card ", index, "; this machine has ", *count));
  }
  cudaDeviceProp card;
  cudaError_t error = cudaGetDeviceProperties(&card, index);
  if (error == cudaSuccess) error = cudaSetDevice(index);
  if (error != cudaSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("card ", index, " cannot be used: ", cudaGetErrorString(error)));
  }
  if (!HasCode(card.major, card.minor)) {
    return absl::FailedPreconditionError(
        absl::StrCat("card ", index, " (", card.name, ") is sm_", card.major, card.minor,
                     "; this build has kernels for sm_80 to sm_89, sm_90 and sm_100"));
  }
  DeviceProperties properties;
  properties.name = NameOf(index, card.name);
  properties.architecture = card.major * 10 + card.minor;
  properties.multiprocessors = card.multiProcessorCount;
  properties.shared_bytes = static_cast<int64_t>(card.sharedMemPerBlockOptin);
  properties.multiprocessor_shared_bytes = static_cast<int64_t>(card.sharedMemPerMultiprocessor);
  properties.total_bytes = static_cast<int64_t>(card.totalGlobalMem);
  absl::StatusOr<Blas> blas = LoadBlas();
  if (!blas.ok()) {
    return blas.status();
  }
  auto runtime = std::make_unique<CudaRuntime>(index, std::move(properties), *blas);
  if (absl::Status status = runtime->Open(); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Runtime>(std::move(runtime));
}

}  // namespace attnd::kernels::cuda
