#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace focus {

/// A connection to this machine, closed with it.
class Connection {
 public:
  explicit Connection(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = local(port);
    const timeval most{30, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { close(socket_); }

  bool connected() const { return connected_; }
  void send(const std::string& text) const {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = ::send(socket_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return;  // the server has closed it
      done += static_cast<std::size_t>(n);
    }
  }
  /// What comes until `part` has come, or the server closes it.
  std::string read(const std::string& part = "") {
    char buffer[4096];
    while (part.empty() || text_.find(part) == std::string::npos) {
      const ssize_t n = recv(socket_, buffer, sizeof(buffer), 0);
      if (n <= 0) break;
      text_.append(buffer, static_cast<std::size_t>(n));
    }
    return text_;
  }

  static sockaddr_in local(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

 private:
  int socket_;
  bool connected_ = false;
  std::string text_;
};

/// A port that is free now.
inline int free_port() {
  const int one = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Connection::local(0);
  socklen_t size = sizeof(address);
  bind(one, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(one, reinterpret_cast<sockaddr*>(&address), &size);
  close(one);
  return ntohs(address.sin_port);
}

struct HttpAnswer {
  int status = 0;
  std::string head, body;
  nlohmann::json json() const { return nlohmann::json::parse(body); }
};

/// The text of a request; with a body a POST.
inline std::string http_request(const std::string& path, const std::string& body = "",
                                const std::string& headers = "") {
  return (body.empty() ? "GET " : "POST ") + path + " HTTP/1.1\r\nHost: localhost\r\n" +
         "Connection: close\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
}

inline HttpAnswer parse_http(const std::string& text) {
  const std::size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) throw std::runtime_error("no HTTP answer: " + text);
  HttpAnswer answer{std::stoi(text.substr(9)), text.substr(0, end), ""};
  const std::string rest = text.substr(end + 4);
  if (answer.head.find("chunked") == std::string::npos) {
    answer.body = rest;
    return answer;
  }
  for (std::size_t at = 0; at < rest.size();) {
    const std::size_t line = rest.find("\r\n", at), size = std::stoul(rest.substr(at), nullptr, 16);
    if (size == 0) return answer;
    answer.body += rest.substr(line + 2, size);
    at = line + 2 + size + 2;
  }
  throw std::runtime_error("an HTTP answer was cut: " + text);
}

inline HttpAnswer ask(int port, const std::string& request) {
  Connection connection(port);
  connection.send(request);
  return parse_http(connection.read());
}

}  // namespace focus
