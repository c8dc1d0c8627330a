/* SPDX-License-Identifier: BSD-3-Clause */
/* UDP sockets: address parsing, and bursts by sendmmsg() and recvmmsg(). */
#include "kvr_udp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define UDP_SOCKET_BYTES (4 << 20) /* requested; the kernel may grant less */

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

struct udp_socket {
	int fd;
	int family; /* AF_INET only if the kernel has no IPv6 */
	/* Buffers of recvmmsg(), prepared for the next call. */
	struct mmsghdr rx_mm[KVR_UDP_BURST];
	struct iovec rx_iov[KVR_UDP_BURST];
	struct sockaddr_storage rx_from[KVR_UDP_BURST];
	alignas(64) uint8_t rx[KVR_UDP_BURST][KVR_UDP_MAX_DGRAM];
};

static void from_sockaddr(struct kvr_udp_addr *a, const struct sockaddr_storage *ss)
{
	*a = (struct kvr_udp_addr){0};
	if (ss->ss_family == AF_INET) {
		const struct sockaddr_in *s = (const void *)ss;

		memcpy(a->ip, mapped, sizeof(mapped));
		memcpy(a->ip + 12, &s->sin_addr, 4);
		a->port = ntohs(s->sin_port);
	} else {
		const struct sockaddr_in6 *s = (const void *)ss;

		memcpy(a->ip, &s->sin6_addr, 16);
		a->port = ntohs(s->sin6_port);
		a->scope = s->sin6_scope_id;
	}
}

static socklen_t to_sockaddr(const struct kvr_udp_addr *a, int family, struct sockaddr_storage *ss)
{
	struct sockaddr_in6 *s6 = (void *)ss;
	struct sockaddr_in *s4 = (void *)ss;

	if (family == AF_INET) {
		*s4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(a->port)};
		memcpy(&s4->sin_addr, a->ip + 12, 4);
		return sizeof(*s4);
	}
	*s6 = (struct sockaddr_in6){
		.sin6_family = AF_INET6, .sin6_port = htons(a->port), .sin6_scope_id = a->scope};
	memcpy(&s6->sin6_addr, a->ip, 16);
	return sizeof(*s6);
}

/* Split "host:port". A bare IPv6 literal has several colons and no brackets. */
static int split_address(const char *text, char *host, size_t size, const char **port)
{
	const char *colon = strchr(text, ':'), *end = text + strlen(text);

	*port = NULL;
	if (text[0] == '[') {
		text++;
		end = strchr(text, ']');
		if (end == NULL || (end[1] != '\0' && end[1] != ':'))
			return -EINVAL;
		*port = end[1] == ':' ? end + 2 : NULL;
	} else if (colon != NULL && strchr(colon + 1, ':') == NULL) {
		end = colon;
		*port = colon + 1;
	}
	if (end == text || (size_t)(end - text) >= size)
		return -EINVAL;
	memcpy(host, text, (size_t)(end - text));
	host[end - text] = '\0';
	return 0;
}

static int parse_port(const char *text, uint16_t *port)
{
	unsigned long v;
	char *end;

	if (text == NULL)
		return 0;
	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	v = strtoul(text, &end, 10);
	if (*end != '\0' || v > UINT16_MAX)
		return -EINVAL;
	*port = (uint16_t)v;
	return 0;
}

int kvr_udp_resolve(const char *text, uint16_t port, struct kvr_udp_addr *out)
{
	struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *ai;
	struct sockaddr_storage ss = {0};
	const char *port_text;
	char host[256];
	int rc;

	rc = split_address(text, host, sizeof(host), &port_text);
	if (rc == 0)
		rc = parse_port(port_text, &port);
	if (rc < 0)
		return rc;
	rc = getaddrinfo(host, NULL, &hints, &ai);
	if (rc != 0)
		return rc == EAI_MEMORY ? -ENOMEM : rc == EAI_AGAIN ? -EAGAIN : -ENOENT;
	memcpy(&ss, ai->ai_addr, ai->ai_addrlen);
	freeaddrinfo(ai);
	from_sockaddr(out, &ss);
	out->port = port;
	return 0;
}

static unsigned int udp_send(void *ctx, const struct kvr_udp_msg m[], unsigned int n)
{
	struct sockaddr_storage ss[KVR_UDP_BURST];
	struct mmsghdr mm[KVR_UDP_BURST];
	struct iovec iov[KVR_UDP_BURST];
	struct udp_socket *s = ctx;
	unsigned int i, sent = 0;

	n = n < KVR_UDP_BURST ? n : KVR_UDP_BURST;
	for (i = 0; i < n; i++) {
		iov[i] = (struct iovec){m[i].data, m[i].len};
		mm[i] = (struct mmsghdr){
			.msg_hdr = {.msg_name = &ss[i],
				    .msg_namelen = to_sockaddr(&m[i].addr, s->family, &ss[i]),
				    .msg_iov = &iov[i],
				    .msg_iovlen = 1}};
	}
	for (i = 0; i < n;) {
		int rc = sendmmsg(s->fd, &mm[i], n - i, MSG_DONTWAIT);

		if (rc > 0) {
			i += (unsigned int)rc;
			sent += (unsigned int)rc;
		} else if (errno == EAGAIN || errno == ENOBUFS) {
			break;
		} else if (errno != EINTR) {
			i++; /* this destination is unreachable; others may not be */
		}
	}
	return sent;
}

static void ready_to_receive(struct udp_socket *s)
{
	for (unsigned int i = 0; i < KVR_UDP_BURST; i++) {
		s->rx_iov[i] = (struct iovec){s->rx[i], KVR_UDP_MAX_DGRAM};
		s->rx_mm[i] = (struct mmsghdr){.msg_hdr = {.msg_name = &s->rx_from[i],
							   .msg_namelen = sizeof(s->rx_from[i]),
							   .msg_iov = &s->rx_iov[i],
							   .msg_iovlen = 1}};
	}
}

static unsigned int udp_recv(void *ctx, struct kvr_udp_msg m[], unsigned int n)
{
	struct udp_socket *s = ctx;
	int rc;

	n = n < KVR_UDP_BURST ? n : KVR_UDP_BURST;
	do
		rc = recvmmsg(s->fd, s->rx_mm, n, MSG_DONTWAIT, NULL);
	while (rc < 0 && errno == EINTR);
	for (int i = 0; i < rc; i++) {
		from_sockaddr(&m[i].addr, &s->rx_from[i]);
		m[i].data = s->rx[i];
		m[i].len = s->rx_mm[i].msg_len;
		s->rx_mm[i].msg_hdr.msg_namelen = sizeof(s->rx_from[i]);
	}
	return rc > 0 ? (unsigned int)rc : 0;
}

static uint64_t udp_now_us(void *ctx)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static int udp_fd(void *ctx)
{
	return ((struct udp_socket *)ctx)->fd;
}

static void udp_close(void *ctx)
{
	close(udp_fd(ctx));
	free(ctx);
}

static const struct kvr_udp_io udp_io = {
	.send = udp_send,
	.recv = udp_recv,
	.now_us = udp_now_us,
	.fd = udp_fd,
	.close = udp_close,
};

static int open_socket(struct udp_socket *s, const struct kvr_udp_addr *local)
{
	const int bytes = UDP_SOCKET_BYTES, off = 0;
	struct sockaddr_storage ss;
	socklen_t len;

	s->family = AF_INET6;
	s->fd = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s->fd < 0 && errno == EAFNOSUPPORT) {
		s->family = AF_INET;
		s->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	}
	if (s->fd < 0)
		return -errno;
	if (s->family == AF_INET6)
		setsockopt(s->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	/* Beyond the system limit if permitted (CAP_NET_ADMIN). */
	if (setsockopt(s->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) < 0)
		setsockopt(s->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	len = to_sockaddr(local, s->family, &ss);
	if (bind(s->fd, (struct sockaddr *)&ss, len) < 0)
		return -errno;
	return 0;
}

int kvr_udp_open(struct kvr_udp *u, const char *local)
{
	struct kvr_udp_addr any = {0};
	struct udp_socket *s;
	int rc;

	if (local != NULL) {
		rc = kvr_udp_resolve(local, 0, &any);
		if (rc < 0)
			return rc;
	}
	s = aligned_alloc(alignof(struct udp_socket), sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	ready_to_receive(s);
	rc = open_socket(s, &any);
	if (rc < 0) {
		if (s->fd >= 0)
			close(s->fd);
		free(s);
		return rc;
	}
	*u = (struct kvr_udp){.io = &udp_io, .ctx = s};
	return 0;
}

int kvr_udp_local(const struct kvr_udp *u, struct kvr_udp_addr *out)
{
	struct sockaddr_storage ss = {0};
	socklen_t len = sizeof(ss);

	if (getsockname(u->io->fd(u->ctx), (struct sockaddr *)&ss, &len) < 0)
		return -errno;
	from_sockaddr(out, &ss);
	return 0;
}

void kvr_udp_close(struct kvr_udp *u)
{
	if (u->io != NULL)
		u->io->close(u->ctx);
	*u = (struct kvr_udp){0};
}
