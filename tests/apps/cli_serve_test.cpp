// The server as clients see it: answers whole and streamed, what is refused, clients that leave.
#include <thread>

#include "tests/support/cli.h"
#include "tests/support/golden_folders.h"
#include "tests/support/http.h"

namespace focus {
namespace {

#ifdef FOCUS_NO_SERVER
TEST(CliServe, SaysWhatItWasBuiltWithout) {
  expect_refused("serve {base}", {"cpp-httplib", "libcpp-httplib-dev"});
}
#else
/// `focus serve` on a free port.
class Server {
 public:
  explicit Server(const Words& arguments) {
    process_ = cli().start(Words{"serve"} + arguments + Words{"--port", std::to_string(port)});
    const bool listens = Process::wait_until(
        kRunSeconds, [&] { return process_->ended() || Connection(port).connected(); });
    if (!listens || process_->ended())
      throw std::runtime_error("no server: " + process_->wait(1).err);
  }
  HttpAnswer get(const std::string& path) const { return ask(port, http_request(path)); }
  HttpAnswer post(const std::string& path, const nlohmann::json& body) const {
    return ask(port, http_request(path, body.dump()));
  }
  double metric(const std::string& name) const {
    const std::string text = get("/metrics").body;
    return std::stod(text.substr(text.find("\nfocus_" + name + " ") + name.size() + 8));
  }
  bool becomes(const std::string& name, double value) const {
    return Process::wait_until(kRunSeconds, [&] { return metric(name) == value; });
  }
  ProcessResult end() const {
    process_->send(SIGTERM);
    return process_->wait(kRunSeconds);
  }

  const int port = free_port();

 private:
  std::unique_ptr<Process> process_;
};

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChat = "/v1/chat/completions";

std::string error_of(const HttpAnswer& answer) {
  return answer.json().at("error").at("message").get<std::string>();
}

TEST(CliServe, ItsTextsAreThoseOfGenerate) {
  for (const Words& with :
       {Words(""), Words("--adapter {keys} --attention summary:1"),
        Words("--adapter {adapter} --attention hard:2"), Words("--speculate ngram"),
        Words("--adapter {keys} --speculate groups")}) {
    const Server server(Words("{base}") + with);
    const auto json = cli().figures(Words("generate {base} --max-new-tokens 30") + with +
                                    Words{"--prompt", "Once upon a"});
    const nlohmann::json request = {
        {"prompt", "Once upon a"}, {"max_tokens", 30}, {"temperature", 0}};
    // Several together, and again out of a cache.
    std::vector<HttpAnswer> answers(3);
    std::vector<std::thread> clients;
    for (HttpAnswer& answer : answers)
      clients.emplace_back([&] { answer = server.post(kCompletions, request); });
    for (std::thread& client : clients) client.join();
    answers.push_back(server.post(kCompletions, request));
    for (const HttpAnswer& answer : answers) {
      ASSERT_EQ(answer.status, 200) << answer.body;
      EXPECT_EQ(answer.json()["choices"][0]["text"], json["text"]);
      EXPECT_EQ(answer.json()["choices"][0]["finish_reason"], "length");
      EXPECT_EQ(answer.json()["usage"]["prompt_tokens"], 11);
      EXPECT_EQ(answer.json()["usage"]["completion_tokens"], 30);
    }
    const nlohmann::json figures = answers[3].json()["choices"][0]["focus"];
    EXPECT_EQ(figures["attention"], json["attention"]);
    EXPECT_EQ(figures["density"], json["keys_read"]);
    EXPECT_GT(figures["tokens_per_second"], 0.0);
    const ProcessResult result = server.end();
    EXPECT_EQ(result.status, 0) << result.err;
    expect_parts(result.out, {"model.h5 at http://127.0.0.1:" + std::to_string(server.port)});
  }
}

TEST(CliServe, AStreamHasTheSameTextAndEndsWithDone) {
  const Server server("{base}");
  nlohmann::json request = {{"prompt", "Once upon a"},
                            {"max_tokens", 20},
                            {"temperature", 0},
                            {"logprobs", 2},
                            {"echo", true}};
  const auto whole = server.post(kCompletions, request).json()["choices"][0];
  request["stream"] = true;
  request["stream_options"] = {{"include_usage", true}};
  const HttpAnswer streamed = server.post(kCompletions, request);
  EXPECT_TRUE(contains(streamed.head, "text/event-stream")) << streamed.head;
  std::string text;
  nlohmann::json last, logprobs = nlohmann::json::array();
  std::vector<std::string> lines = lines_of(streamed.body);
  ASSERT_GE(lines.size(), 3u);
  EXPECT_EQ(lines[lines.size() - 2], "data: [DONE]");
  for (const std::string& line : lines) {
    if (!line.starts_with("data: {")) continue;
    last = nlohmann::json::parse(line.substr(6));
    for (const auto& choice : last["choices"]) {
      text += choice["text"].get<std::string>();
      if (choice["logprobs"].is_null()) continue;
      for (const auto& value : choice["logprobs"]["token_logprobs"]) logprobs.push_back(value);
    }
  }
  EXPECT_EQ(text, whole["text"]);
  EXPECT_EQ(logprobs, whole["logprobs"]["token_logprobs"]);
  EXPECT_EQ(logprobs.size(), 31u);
  EXPECT_TRUE(logprobs[0].is_null());
  EXPECT_EQ(last["usage"]["completion_tokens"], 20);
  EXPECT_TRUE(contains(streamed.body, R"("focus":{"attention":"dense","density":1.0)"));
}

TEST(CliServe, PromptLogProbabilitiesAreThoseOfScore) {
  const Server server("{base}");
  const std::string requests = cli().fresh("requests.jsonl"), out = cli().fresh("answers.jsonl");
  write_text(requests, R"({"type":"loglikelihood","context":"Once","continuation":" upon a time"})"
                       "\n");
  cli().must_run(words("score {base} --requests {} --out {}", requests, out));
  const auto answer = server
                          .post(kCompletions, {{"prompt", "Once upon a time"},
                                               {"max_tokens", 1},
                                               {"temperature", 0},
                                               {"logprobs", 1},
                                               {"echo", true}})
                          .json()["choices"][0];
  // As lm-evaluation-harness's local-completions sums them.
  const auto values = answer["logprobs"]["token_logprobs"],
             tops = answer["logprobs"]["top_logprobs"];
  ASSERT_EQ(values.size(), 17u);
  double sum = 0;
  bool greedy = true;
  for (std::size_t t = 4; t < 16; ++t) {
    sum += values[t].get<double>();
    for (const auto& [token, value] : tops[t].items()) greedy &= values[t] >= value;
  }
  const auto expected = nlohmann::json::parse(read_text(out));
  EXPECT_NEAR(sum, expected["log_likelihood"].get<double>(), 1e-4);
  EXPECT_EQ(greedy, expected["is_greedy"].get<bool>());
}

TEST(CliServe, AConversationGoesThroughTheTemplateAndOnFromTheCache) {
  const std::string model = model_folder(
      "gpt2", {{"chat_template.jinja",
                "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"}});
  const Server server({model});
  const auto shown = cli().figures(
      words("generate {} --chat --max-new-tokens 5 --prompt Hi --temperature 0", model));
  nlohmann::json messages = {{{"role", "user"}, {"content", "Hi"}}};
  const auto ask_chat = [&](bool in_parts) {
    nlohmann::json sent = messages;
    if (in_parts)
      sent[0]["content"] = {{{"type", "text"}, {"text", "H"}}, {{"type", "text"}, {"text", "i"}}};
    return server
        .post(kChat, {{"messages", sent},
                      {"max_tokens", 5},
                      {"temperature", 0},
                      {"logprobs", true},
                      {"top_logprobs", 2}})
        .json();
  };
  for (const bool in_parts : {false, true}) {
    const auto answer = ask_chat(in_parts);
    EXPECT_EQ(answer["object"], "chat.completion");
    EXPECT_EQ(answer["choices"][0]["message"]["content"], shown["text"]) << answer;
    EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
    const auto content = answer["choices"][0]["logprobs"]["content"];
    ASSERT_EQ(content.size(), 5u);
    EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
    EXPECT_EQ(content[0]["top_logprobs"][0]["logprob"], content[0]["logprob"]);
  }
}

TEST(CliServe, PromptsAreSavedForALaterServer) {
  const std::string text = "Once upon a time there was a small town";  // 39 tokens
  const nlohmann::json request = {{"max_tokens", 5}, {"temperature", 0}};
  const auto ask = [&](const Server& server, const std::string& ending) {
    nlohmann::json asked = request;
    asked["prompt"] = text + ending;
    return server.post(kCompletions, asked).json();
  };
  const auto cached = [](const nlohmann::json& answer) {
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  for (const char* const with : {"", "--adapter {keys} --attention summary:1"}) {
    const std::string folder = cli().fresh("caches");
    const Words command = Words("{base}") + words(with) + Words{"--cache-dir", folder};
    {
      const Server server(command);
      EXPECT_EQ(cached(ask(server, " and")), 0);
      EXPECT_EQ(server.end().status, 0);
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
    const Server later(command), without(Words("{base}") + words(with));
    const auto answer = ask(later, " but not");
    EXPECT_EQ(cached(answer), 40) << with;
    EXPECT_EQ(answer["choices"][0]["text"], ask(without, " but not")["choices"][0]["text"]);
    EXPECT_EQ(later.metric("prompt_tokens_cached_total"), 40);
    later.end();
    const Server small(command + "--cache-limit 1KB");  // it removes what is beyond
    EXPECT_EQ(cached(ask(small, " and")), 0);
    EXPECT_TRUE(fs::is_empty(folder));
  }
  expect_parts(cli().run("serve {base} --cache-limit 1KB").err, {"--cache-limit requires"});
  expect_refused("serve {base} --cache-dir {base}", {"a part of the path is a file"});
}

TEST(CliServe, BadRequestsGetTheirStatusAndOpenAIsError) {
  const Server server("{base}");
  const auto expect_error = [&](const std::string& path, const std::string& body, int status,
                                const std::string& part) {
    const HttpAnswer answer = ask(server.port, http_request(path, body));
    EXPECT_EQ(answer.status, status) << body;
    EXPECT_TRUE(contains(error_of(answer), part)) << answer.body;
    EXPECT_EQ(answer.json()["error"]["type"], "invalid_request_error");
  };
  expect_error(kCompletions, "{", 400, "not valid JSON");
  expect_error(kCompletions, R"({"prompt":"a","prompts":1})", 400, "unknown field \"prompts\"");
  expect_error(kCompletions, R"({"prompt":"a","temperature":"hot"})", 400, "expected a number");
  expect_error(kChat, R"({"messages":[{"role":"user","content":"a"}]})", 400, "chat template");
  expect_error(kCompletions, nlohmann::json({{"prompt", std::string(65, 'a')}}).dump(), 400,
               "65 tokens");
  expect_error("/v1/nothing", "{}", 404, "/v1/nothing");
  expect_error("/../../etc/passwd", "", 404, "no such path");
  expect_error(kCompletions, std::string((16 << 20) + 1, ' '), 413, "more than");
  // The same in chunks, which say no length.
  Connection chunked(server.port);
  chunked.send(std::string("POST ") + kCompletions +
               " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk(1 << 20, ' ');
  for (int i = 0; i < 17; ++i) chunked.send("100000\r\n" + chunk + "\r\n");
  EXPECT_EQ(parse_http(chunked.read("}}")).status, 413);
  // What is no HTTP at all.
  Connection noise(server.port);
  noise.send("\x16\x03\x01 nothing\r\n\r\n\r\n");
  noise.read("}}");
  EXPECT_EQ(server.get("/health").body, "{\"status\":\"ok\"}\n");
  EXPECT_EQ(server.get("/v1/models").json()["data"][0]["id"], "model.h5");
  EXPECT_EQ(server.get("/v1/models").json()["data"][0]["max_model_len"], 64);
  const HttpAnswer page = server.get("/");
  EXPECT_TRUE(page.body.starts_with("<!DOCTYPE html>") && page.body.ends_with("</html>\n"));
  EXPECT_TRUE(contains(page.head, "text/html; charset=utf-8") &&
              contains(page.head, "Content-Security-Policy: default-src 'none'"));
}

TEST(CliServe, ClientsThatHangUpFreeTheirSlots) {
  const std::string run = cli().fresh("long");  // a model of texts that take long
  cli().must_run(cli().scratch({"out=" + run, "steps=1", "model.max_position_embeddings=4096"}));
  const Server server(words("{} --parallel 1", run + "/model.h5"));
  for (const bool stream : {false, true}) {
    const nlohmann::json body = {{"prompt", "Once"}, {"max_tokens", 4000}, {"stream", stream}};
    std::vector<std::unique_ptr<Connection> > clients;
    for (int i = 0; i < 65; ++i) {  // one is answered, the others wait
      clients.push_back(std::make_unique<Connection>(server.port));
      clients.back()->send(http_request(kCompletions, body.dump()));
    }
    EXPECT_TRUE(server.becomes("requests_waiting", 64));
    const HttpAnswer refused = server.post(kCompletions, body);
    EXPECT_EQ(refused.status, 503);
    EXPECT_TRUE(contains(refused.head, "Retry-After"));
    clients.clear();
    EXPECT_TRUE(server.becomes("requests_running", 0) && server.becomes("requests_waiting", 0));
  }
  EXPECT_LT(server.metric("generated_tokens_total"), 2 * 65 * 4000 / 4);
  EXPECT_EQ(server.post(kCompletions, {{"prompt", "Once"}, {"max_tokens", 3}}).status, 200);
  EXPECT_EQ(server.end().status, 0);
}

TEST(CliServe, AKeyIsAskedFor) {
  const std::string file = cli().fresh("keys.txt");
  write_text(file, "one\n\ntwo\r\n");
  const Server server(words("{base} --api-key-file {}", file));
  EXPECT_EQ(server.get("/health").status, 200);
  for (const char* path : {"/v1/models", "/metrics"}) EXPECT_EQ(server.get(path).status, 401);
  const auto status = [&](const std::string& header) {
    return ask(server.port, http_request(kCompletions, R"({"prompt":"a","max_tokens":1})", header))
        .status;
  };
  EXPECT_EQ(status(""), 401);
  EXPECT_EQ(status("Authorization: Bearer three\r\n"), 401);
  EXPECT_EQ(status("Authorization: Bearer on\r\n"), 401);
  EXPECT_EQ(status("Authorization: Bearer \r\n"), 401);
  EXPECT_EQ(status("Authorization: Bearer one\r\n"), 200);
  EXPECT_EQ(status("Authorization: Bearer two\r\n"), 200);
  write_text(file, "\n\n");
  expect_refused(words("serve {base} --api-key-file {}", file), {file, "no key"});
  expect_refused("serve {base} --speculate groups", {"speculate summary"});
  expect_refused(words("serve {base} --port {}", std::to_string(server.port)),
                 {"cannot listen on 127.0.0.1", "--port"});
  expect_refused("serve {base} --host 203.0.113.7 --port 0", {"203.0.113.7", "--host"});
}
#endif

}  // namespace
}  // namespace focus
