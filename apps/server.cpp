#include "apps/server.h"

#include "apps/command.h"
#include "autograd/base/check.h"

#ifdef FOCUS_SERVER
#include <fmt/format.h>
#include <httplib.h>
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <chrono>
#include <deque>
#include <thread>

#include "apps/api.h"
#include "apps/page.html.inc"
#include "data/chat/chat_template.h"
#include "data/files/json_reader.h"

namespace focus::app {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMostBytes = 16 << 20;  // of a body
constexpr auto kLook = 200ms;                 // after which it is looked whether a client is there
constexpr auto kMostTime = 60s;               // in which a body comes
constexpr std::size_t kMostConnections = 4096;
constexpr std::size_t kMostBytesAtOnce = 16 * kMostBytes;  // of all bodies
constexpr std::size_t kLarge = 256 << 10;  // a body of which only one is read at a time
/// The page loads nothing from elsewhere, and is part of no other page.
constexpr const char* kPagePolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A request that is being answered. The scheduler's thread adds events, the connection's takes
/// them.
class Running {
 public:
  Running(ApiRequest request, const Tokenizer& tokenizer, const ServerOptions& options)
      : request_(std::move(request)),
        answer_(request_, tokenizer, options.name, options.attention) {}
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { cancel(); }

  const ApiRequest& request() const { return request_; }

  /// Throws ApiError where the scheduler has no room.
  void submit(Scheduler& scheduler) {
    for (const std::vector<std::int32_t>& prompt : request_.prompts) {
      OnToken on_token;
      if (request_.stream)
        on_token = [this](const std::string& text, const Generated& made) {
          add_events(text, made);
          return true;
        };
      std::optional<Scheduler::Ticket> ticket =
          scheduler.submit(prompt, request_.options, on_token);
      if (!ticket)
        throw ApiError(503, "server_busy", "too many requests are waiting; try again later");
      tickets_.push_back(std::move(*ticket));
    }
  }
  void cancel() const {
    for (const Scheduler::Ticket& ticket : tickets_) ticket.cancel();
    // Its callback is this object's.
    for (const Scheduler::Ticket& ticket : tickets_)
      if (ticket.result.valid()) ticket.result.wait();
  }

  /// Content providers of httplib: false closes the connection.
  bool write_whole(httplib::DataSink& sink) {
    std::vector<Generated> made;
    for (Scheduler::Ticket& ticket : tickets_) {
      while (ticket.result.wait_for(kLook) != std::future_status::ready)
        if (!sink.is_writable()) return false;
      made.push_back(ticket.result.get());
    }
    const std::string text = answer_.whole(made);
    if (!sink.write(text.data(), text.size())) return false;
    sink.done();
    return true;
  }
  bool write_events(httplib::DataSink& sink) {
    std::string text;
    std::future<Generated>& result = tickets_.front().result;
    bool last = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kLook, [this] { return !events_.empty() || ended_; });
      // Before the events are taken: those of a result that is there are among them then.
      last = ended_ || result.wait_for(0s) == std::future_status::ready;
      text.swap(events_);
    }
    if (!sink.is_writable()) return false;
    if (last) text += last_events(result);
    if (!text.empty() && !sink.write(text.data(), text.size())) return false;
    if (last) sink.done();
    return true;
  }

 private:
  void add_events(const std::string& text, const Generated& made) {
    std::string events = begun_ ? "" : answer_.begin(made);
    begun_ = true;
    events += answer_.part(text, made, told_);
    told_ = made.logprobs.size();
    const std::lock_guard lock(mutex_);
    events_ += events;
    ended_ = !made.stop.empty();
    wake_.notify_one();
  }
  std::string last_events(std::future<Generated>& result) const {
    try {
      return answer_.end(result.get());
    } catch (const std::exception& error) {
      spdlog::error("a text ended: {}", error.what());
      return ApiAnswer::error(ApiError(500, "", "the text could not be generated"));
    }
  }

  const ApiRequest request_;
  const ApiAnswer answer_;
  std::vector<Scheduler::Ticket> tickets_;
  bool begun_ = false;    // of the scheduler's thread, as the next
  std::size_t told_ = 0;  // log-probabilities in events
  std::mutex mutex_;      // of what follows
  std::condition_variable wake_;
  std::string events_;
  bool ended_ = false;
};

/// Whether two texts are equal, in a time that does not tell where they differ.
bool same_secret(const std::string& a, const std::string& b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && !b.empty(); ++i)
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i % b.size()]);
  return different == 0;
}

/// Threads for connections, which each keep one as long as they are open: as many as there are, up
/// to a number, so that clients that are slow or silent do not keep others waiting.
class Workers final : public httplib::TaskQueue {
 public:
  void enqueue(std::function<void()> job) override {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (jobs_.size() > idle_ && alive_ < kMostConnections) try {
        std::thread([this] { work(); }).detach();
        ++alive_;
      } catch (const std::system_error& error) {
        spdlog::warn("{} connections, and no thread for another: {}", alive_, error.what());
      }
    wake_.notify_one();
  }
  void shutdown() override {
    std::unique_lock lock(mutex_);
    ended_ = true;
    wake_.notify_all();
    gone_.wait(lock, [this] { return alive_ == 0; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      wake_.wait_for(lock, 10s, [this] { return ended_ || !jobs_.empty(); });
      --idle_;
      if (jobs_.empty()) break;
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
    --alive_;
    gone_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable wake_, gone_;
  std::deque<std::function<void()>> jobs_;
  std::size_t idle_ = 0, alive_ = 0;
  bool ended_ = false;
};

/// Bytes of bodies that are in memory, of which there are at most kMostBytesAtOnce.
class Held {
 public:
  explicit Held(std::atomic<std::size_t>& all) : all_(all) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    all_ -= bytes_;
    // What it took goes back to the system: each thread's heap would keep it otherwise.
    if (bytes_ >= kLarge) malloc_trim(0);
  }
  bool add(std::size_t bytes) {
    bytes_ += bytes;
    return (all_ += bytes) <= kMostBytesAtOnce;
  }

 private:
  std::atomic<std::size_t>& all_;
  std::size_t bytes_ = 0;
};

class Service {
 public:
  Service(const LoadedModel& model, const GenerationModel& generation, const ServerOptions& options)
      : model_(model),
        options_(options),
        scheduler_(generation, options.limits),
        chat_(has_chat_template(model.chat_files(), model.chat_where())),
        started_(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())) {}

  Scheduler& scheduler() { return scheduler_; }
  /// Lets more clients connect at once than httplib does. After the server has its address.
  void await_many() const { listen(socket_, SOMAXCONN); }

  void add_to(httplib::Server& server) {
    const auto get = [&](const char* path, bool open, auto&& content) {
      server.Get(path, [=, this](const httplib::Request& request, httplib::Response& response) {
        answer_errors(response, [&] {
          if (!open) require_key(request);
          content(response);
        });
      });
    };
    get("/health", true, [](httplib::Response& response) {
      response.set_content("{\"status\":\"ok\"}\n", "application/json");
    });
    get("/", true, [](httplib::Response& response) {
      response.set_header("Content-Security-Policy", kPagePolicy);
      response.set_content(kPage.data(), kPage.size(), "text/html; charset=utf-8");
    });
    get("/v1/models", false, [this](httplib::Response& response) {
      const Json model = {{"id", options_.name},
                          {"object", "model"},
                          {"created", started_},
                          {"owned_by", "focus"},
                          {"max_model_len", model_.decoder->config().max_position_embeddings},
                          {"focus", {{"attention", options_.attention}, {"chat", chat_}}}};
      response.set_content(
          json_text(Json{{"object", "list"}, {"data", Json::array({model})}}) + "\n",
          "application/json");
    });
    get("/metrics", false, [this](httplib::Response& response) {
      response.set_content(metrics(), "text/plain; version=0.0.4");
    });
    for (const bool chat : {false, true})
      server.Post(chat ? "/v1/chat/completions" : "/v1/completions",
                  [=, this](const httplib::Request& request, httplib::Response& response,
                            const httplib::ContentReader& reader) {
                    answer_errors(response, [&] { generate(chat, request, response, reader); });
                  });
    server.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
      if (!response.body.empty()) return;
      const int status = response.status;
      const std::string what = status == 404   ? "no such path: " + shown(request.path)
                               : status == 413 ? too_large()
                                               : "a request that HTTP does not allow";
      response.set_content(ApiError(status, "", what).body(), "application/json");
    });
    server.set_keep_alive_max_count(1 << 20);
    server.new_task_queue = [] { return new Workers; };
    // httplib's own would let two servers share a port.
    server.set_socket_options([this](int socket) {
      const int yes = 1;
      socket_ = socket;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
  }

 private:
  static std::string too_large() {
    return fmt::format("the body has more than {} bytes", kMostBytes);
  }

  void answer_errors(httplib::Response& response, auto&& f) const {
    const auto write = [&](const ApiError& error) {
      response.status = error.status;
      if (error.status == 503) response.set_header("Retry-After", "1");
      response.set_content(error.body(), "application/json");
    };
    try {
      f();
    } catch (const ApiError& error) {
      write(error);
    } catch (const std::exception& error) {
      spdlog::error("a request failed: {}", error.what());
      write(ApiError(500, "", "the server could not answer"));
    }
  }

  void require_key(const httplib::Request& request) const {
    const std::string given = request.get_header_value("Authorization");
    bool found = options_.keys.empty();
    for (const std::string& key : options_.keys) found |= same_secret(given, "Bearer " + key);
    if (!found)
      throw ApiError(401, "invalid_api_key",
                     "the header Authorization: Bearer KEY has no valid key");
  }

  void generate(bool chat, const httplib::Request& request, httplib::Response& response,
                const httplib::ContentReader& reader) {
    // Read first: what is left of a body would be taken for the next request.
    Held held(bytes_);
    std::string body;
    bool fits = true, room = true;
    const auto end = std::chrono::steady_clock::now() + kMostTime;
    const auto take = [&](const char* data, std::size_t size) {
      fits = fits && body.size() + size <= kMostBytes;
      room = room && (!fits || held.add(size));
      if (fits && room) body.append(data, size);
      return std::chrono::steady_clock::now() < end;
    };
    if (request.is_multipart_form_data()) {
      reader([](const auto&) { return true; }, take);
      throw ApiError(400, "", "the body is a form; expected JSON");
    }
    const bool whole = reader(take);
    if (!fits || response.status == 413) throw ApiError(413, "", too_large());
    if (!room) throw ApiError(503, "server_busy", "too many large requests; try again later");
    if (!whole) throw ApiError(400, "", "the body ended early, or is not encoded as it says");
    require_key(request);
    auto running =
        std::make_shared<Running>(read(chat, body), model_.require_tokenizer(), options_);
    running->submit(scheduler_);
    const bool stream = running->request().stream;
    response.set_chunked_content_provider(stream ? "text/event-stream" : "application/json",
                                          [running, stream](std::size_t, httplib::DataSink& sink) {
                                            try {
                                              return stream ? running->write_events(sink)
                                                            : running->write_whole(sink);
                                            } catch (const std::exception& error) {
                                              spdlog::error("a text ended: {}", error.what());
                                              return false;
                                            }
                                          });
  }

  ApiRequest read(bool chat, const std::string& body) {
    if (body.size() < kLarge) return read_api_request(chat, body, model_);
    const std::lock_guard lock(large_);
    return read_api_request(chat, body, model_);
  }

  std::string metrics() const {
    const Scheduler::Counts c = scheduler_.counts();
    std::string text;
    const auto add = [&](const char* name, const char* type, const char* help, auto value) {
      text += fmt::format("# HELP focus_{0} {2}\n# TYPE focus_{0} {1}\nfocus_{0} {3}\n", name, type,
                          help, value);
    };
    add("requests_total", "counter", "Texts that were asked for.", c.requests);
    add("requests_refused_total", "counter", "Texts refused because too many waited.", c.refused);
    add("prompt_tokens_total", "counter", "Tokens of prompts.", c.prompt_tokens);
    add("prompt_tokens_cached_total", "counter", "Of these, in a cache already.", c.reused_tokens);
    add("generated_tokens_total", "counter", "New tokens of texts that ended.", c.generated_tokens);
    add("requests_running", "gauge", "Texts that have a slot.", c.active);
    add("requests_waiting", "gauge", "Texts that wait for a slot.", c.waiting);
    add("cache_bytes", "gauge", "Bytes of all caches.", c.cache_bytes);
    return text;
  }

  const LoadedModel& model_;
  const ServerOptions& options_;
  Scheduler scheduler_;
  const bool chat_;  // it has a template
  const std::int64_t started_;
  int socket_ = -1;  // that listens
  std::atomic<std::size_t> bytes_ = 0;
  std::mutex large_;
};

/// Descriptors for kMostConnections, where the system gives them.
void allow_connections() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = std::max(files.rlim_cur, std::min<rlim_t>(files.rlim_max, 2 * kMostConnections));
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

void serve(const LoadedModel& model, const GenerationModel& generation,
           const ServerOptions& options) {
  Service service(model, generation, options);
  httplib::Server server;
  server.set_payload_max_length(kMostBytes);
  service.add_to(server);
  const int port = options.port == 0 ? server.bind_to_any_port(options.host)
                   : server.bind_to_port(options.host, options.port) ? options.port
                                                                     : -1;
  if (port < 0)
    fail(
        "cannot listen on {}:{}: another program does, or the address is not this machine's; "
        "choose others with --host and --port",
        options.host, options.port);
  service.await_many();
  allow_connections();
  install_stop_signals();
  fmt::print("{} at http://{}:{}/v1\n", options.name, options.host, port);
  std::fflush(stdout);
  const std::jthread listener([&] { server.listen_after_bind(); });
  const std::jthread watcher([&](const std::stop_token& ended) {
    while (stop_signal() == 0 && !ended.stop_requested()) std::this_thread::sleep_for(50ms);
    server.stop();
    service.scheduler().stop();
  });
  // OpenMP's threads, and how many, are those of this thread.
  service.scheduler().run();
}

}  // namespace focus::app
#else

namespace focus::app {

void serve(const LoadedModel&, const GenerationModel&, const ServerOptions&) {
  fail(
      "this program was built without cpp-httplib: install libcpp-httplib-dev, and build it again");
}

}  // namespace focus::app
#endif
