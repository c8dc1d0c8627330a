/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floor: a chain of three processes with the sockets of gateway, router and agent. They only
 * copy bytes, so the added latency is the machine's cost of the wake-ups and system calls.
 *
 *   gateway-null gateway PORT       HTTP of clients at PORT <-> UDP
 *   gateway-null router IFACE       packet socket: forwards between the other two
 *   gateway-null agent PORT N       UDP <-> N connections to the engine at PORT, opened at start
 *
 * The first two bytes of a frame are the number of the client's connection, which is also the
 * number of the engine's connection. The number is free again once the connection has ended. A
 * request arrives in one piece and fits in one frame. The head of an answer is held until more data
 * arrives. There are no retransmissions: data is lost until all three processes have printed
 * `ready`.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/if_ether.h>
#include <linux/if_packet.h>

#define CONNS	     4096u
#define FRAME	     1472u
#define NUMBER	     sizeof(uint16_t)
#define ROUTER	     "10.9.1.1"
#define HOST	     "10.9.1.2"
#define ROUTER_PORT  7200u
#define GATEWAY_PORT 7201u
#define AGENT_PORT   7202u

enum { ETH = 14, IP = 20, UDP = 8, LISTENER = CONNS, TO_ROUTER };

struct conn {
	int fd;
	uint32_t len; /* bytes of the head held */
	char head[160];
};

static struct conn conn[CONNS];
static int ep, udp;

static void exit_unless(bool good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void watch_fd(int fd, uint32_t name)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u32 = name};

	exit_unless(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl");
}

static struct sockaddr_in make_address(const char *host, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

	inet_pton(AF_INET, host, &a.sin_addr);
	return a;
}

static int set_nodelay(int fd)
{
	const int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void open_udp(uint16_t port)
{
	const struct sockaddr_in mine = make_address(HOST, port),
				 router = make_address(ROUTER, ROUTER_PORT);

	udp = socket(AF_INET, SOCK_DGRAM, 0);
	exit_unless(bind(udp, (const struct sockaddr *)&mine, sizeof(mine)) == 0, "bind");
	exit_unless(connect(udp, (const struct sockaddr *)&router, sizeof(router)) == 0, "connect");
	watch_fd(udp, TO_ROUTER);
}

static void print_ready(void)
{
	exit_unless(puts("ready") >= 0 && fflush(stdout) == 0, "stdout");
}

static void accept_one(int listener)
{
	const int fd = set_nodelay(accept(listener, NULL, NULL));
	uint16_t n = 0;

	while (n < CONNS && conn[n].fd > 0)
		n++;
	exit_unless(fd >= 0 && n < CONNS, "accept");
	conn[n] = (struct conn){.fd = fd};
	watch_fd(fd, n);
}

static bool is_head(const char *p, size_t n)
{
	return n > 8 && memcmp(p, "HTTP/1.1", 8) == 0 && memcmp(p + n - 4, "\r\n\r\n", 4) == 0;
}

/* Relay data to the router. The engine sends the head of an answer separately; it leaves with the
 * first token. */
static void relay_from_conn(uint16_t number)
{
	struct conn *c = &conn[number];
	char frame[FRAME];
	const size_t kept = c->len;
	const ssize_t n = recv(c->fd, frame + NUMBER + kept, FRAME - NUMBER - kept, MSG_DONTWAIT);

	if (n <= 0) {
		epoll_ctl(ep, EPOLL_CTL_DEL, c->fd, NULL);
		close(c->fd);
		c->fd = 0;
		return;
	}
	if (kept == 0 && (size_t)n <= sizeof(c->head) && is_head(frame + NUMBER, (size_t)n)) {
		memcpy(c->head, frame + NUMBER, (size_t)n);
		c->len = (uint32_t)n;
		return;
	}
	memcpy(frame, &number, NUMBER);
	memcpy(frame + NUMBER, c->head, kept);
	c->len = 0;
	exit_unless(send(udp, frame, NUMBER + kept + (size_t)n, 0) > 0, "send to the router");
}

static void relay_from_router(void)
{
	char frame[FRAME];
	const ssize_t n = recv(udp, frame, FRAME, MSG_DONTWAIT);
	uint16_t number;

	if (n <= (ssize_t)NUMBER)
		return;
	memcpy(&number, frame, NUMBER);
	if (number < CONNS && conn[number].fd > 0)
		(void)!send(conn[number].fd, frame + NUMBER, (size_t)n - NUMBER, MSG_NOSIGNAL);
}

static void serve_events(int listener)
{
	print_ready();
	for (;;) {
		struct epoll_event e[64];
		const int n = epoll_wait(ep, e, 64, -1);

		for (int i = 0; i < n; i++)
			if (e[i].data.u32 == LISTENER)
				accept_one(listener);
			else if (e[i].data.u32 == TO_ROUTER)
				relay_from_router();
			else
				relay_from_conn((uint16_t)e[i].data.u32);
	}
}

static void run_gateway(uint16_t port)
{
	const struct sockaddr_in a = make_address("127.0.0.1", port);
	const int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	exit_unless(bind(listener, (const struct sockaddr *)&a, sizeof(a)) == 0, "bind");
	exit_unless(listen(listener, CONNS) == 0, "listen");
	watch_fd(listener, LISTENER);
	open_udp(GATEWAY_PORT);
	serve_events(listener);
}

static void run_agent(uint16_t port, uint32_t n)
{
	const struct sockaddr_in a = make_address("127.0.0.1", port);

	open_udp(AGENT_PORT);
	for (uint32_t i = 0; i < n && i < CONNS; i++) {
		conn[i].fd = set_nodelay(socket(AF_INET, SOCK_STREAM, 0));
		exit_unless(connect(conn[i].fd, (const struct sockaddr *)&a, sizeof(a)) == 0,
			    "connect");
		watch_fd(conn[i].fd, i);
	}
	serve_events(-1);
}

/* Swap the Ethernet and IP addresses, which keeps the header checksum valid, and set the ports. */
static void swap_addresses(uint8_t *f)
{
	const uint16_t agent_port = htons(AGENT_PORT), gateway_port = htons(GATEWAY_PORT);
	uint8_t *ip = f + ETH, *u = ip + IP, t[6];
	const bool asked = memcmp(u, &gateway_port, 2) == 0;

	memcpy(t, f, 6);
	memcpy(f, f + 6, 6);
	memcpy(f + 6, t, 6);
	memcpy(t, ip + 12, 4);
	memcpy(ip + 12, ip + 16, 4);
	memcpy(ip + 16, t, 4);
	memcpy(u, u + 2, 2);
	memcpy(u + 2, asked ? &agent_port : &gateway_port, 2);
	memset(u + 6, 0, 2); /* no checksum */
}

static void run_router(const char *iface)
{
	const int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_IP)), one = 1;
	const struct sockaddr_ll a = {.sll_family = AF_PACKET,
				      .sll_protocol = htons(ETH_P_IP),
				      .sll_ifindex = (int)if_nametoindex(iface)};
	uint8_t frame[2048];

	setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one));
	exit_unless(bind(fd, (const struct sockaddr *)&a, sizeof(a)) == 0, iface);
	print_ready();
	for (;;) {
		struct sockaddr_ll from;
		socklen_t len = sizeof(from);
		const ssize_t n =
			recvfrom(fd, frame, sizeof(frame), 0, (struct sockaddr *)&from, &len);

		if (n < ETH + IP + UDP || from.sll_pkttype == PACKET_OUTGOING ||
		    frame[ETH] != 0x45 || frame[ETH + 9] != IPPROTO_UDP)
			continue;
		swap_addresses(frame);
		(void)!send(fd, frame, (size_t)n, 0);
	}
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	ep = epoll_create1(0);
	if (argc == 3 && strcmp(argv[1], "gateway") == 0)
		run_gateway((uint16_t)atoi(argv[2]));
	if (argc == 3 && strcmp(argv[1], "router") == 0)
		run_router(argv[2]);
	if (argc == 4 && strcmp(argv[1], "agent") == 0)
		run_agent((uint16_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
	fprintf(stderr, "usage: gateway-null gateway PORT | router IFACE | agent PORT N\n");
	return 2;
}
