/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses as published to others, and the default number of a worker. */
#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kvr_hash.h"

static enum agent_reach classify_ipv4(uint32_t a)
{
	if (a == INADDR_ANY)
		return AGENT_REACH_ANY;
	if (a >> 24 == 127)
		return AGENT_REACH_SELF;
	if (a >> 16 == 0xa9fe)
		return AGENT_REACH_LINK;
	return a >> 28 >= 0xe ? AGENT_REACH_GROUP : AGENT_REACH_HOST;
}

static enum agent_reach classify_ipv6(const struct in6_addr *a)
{
	uint32_t mapped;

	if (IN6_IS_ADDR_V4MAPPED(a)) {
		memcpy(&mapped, a->s6_addr + 12, sizeof(mapped));
		return classify_ipv4(ntohl(mapped));
	}
	return IN6_IS_ADDR_UNSPECIFIED(a) ? AGENT_REACH_ANY
	       : IN6_IS_ADDR_LOOPBACK(a)  ? AGENT_REACH_SELF
	       : IN6_IS_ADDR_LINKLOCAL(a) ? AGENT_REACH_LINK
	       : IN6_IS_ADDR_MULTICAST(a) ? AGENT_REACH_GROUP
					  : AGENT_REACH_HOST;
}

enum agent_reach agent_address_reach(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (inet_pton(AF_INET, host, &v4) == 1)
		return classify_ipv4(ntohl(v4.s_addr));
	if (inet_pton(AF_INET6, host, &v6) == 1)
		return classify_ipv6(&v6);
	return strcasecmp(host, "localhost") == 0 ? AGENT_REACH_SELF : AGENT_REACH_NAME;
}

int agent_address_split(const char *text, char *host, size_t size, char *port)
{
	const char *colon = strrchr(text, ':');
	size_t n = colon != NULL ? (size_t)(colon - text) : 0;
	unsigned long number;
	char *end;

	if (n == 0 || colon[1] < '0' || colon[1] > '9')
		return -EINVAL;
	number = strtoul(colon + 1, &end, 10);
	if (*end != '\0' || number > 65535)
		return -EINVAL;
	if (text[0] == '[' && text[n - 1] == ']') {
		text++;
		n -= 2;
	} else if (memchr(text, ':', n) != NULL) {
		return -EINVAL;
	}
	if (n == 0 || n >= size)
		return -EINVAL;
	memcpy(host, text, n);
	host[n] = '\0';
	snprintf(port, 6, "%u", (unsigned int)number);
	return 0;
}

void agent_address_facing(const char *router, char *out, size_t size)
{
	struct addrinfo how = {.ai_socktype = SOCK_DGRAM}, *ai = NULL;
	struct sockaddr_storage me;
	socklen_t len = sizeof(me);
	char host[256];
	const char *colon = strrchr(router, ':');
	size_t n = strlen(router);
	int fd = -1;

	out[0] = '\0';
	if (router[0] == '[' && strchr(router, ']') != NULL) {
		router++;
		n = (size_t)(strchr(router, ']') - router);
	} else if (colon != NULL && memchr(router, ':', (size_t)(colon - router)) == NULL) {
		n = (size_t)(colon - router);
	}
	snprintf(host, sizeof(host), "%.*s", (int)n, router);
	if (getaddrinfo(host, "7650", &how, &ai) == 0)
		fd = socket(ai->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, ai->ai_addr, ai->ai_addrlen) == 0 &&
	    getsockname(fd, (struct sockaddr *)&me, &len) == 0 &&
	    getnameinfo((struct sockaddr *)&me, len, out, (socklen_t)size, NULL, 0,
			NI_NUMERICHOST) != 0)
		out[0] = '\0';
	if (fd >= 0)
		close(fd);
	if (ai != NULL)
		freeaddrinfo(ai);
}

int agent_address_publish(const char *host, const char *port, const char *facing,
			  enum agent_replace replace, char *out, size_t size)
{
	const enum agent_reach ours = agent_address_reach(facing);
	enum agent_reach r = agent_address_reach(host);
	int n;

	if ((r == AGENT_REACH_ANY && replace >= AGENT_REPLACE_ANY) ||
	    (r == AGENT_REACH_SELF && replace == AGENT_REPLACE_SELF && ours == AGENT_REACH_HOST)) {
		host = facing;
		r = ours;
	}
	if (host[0] == '\0' || r == AGENT_REACH_ANY || r == AGENT_REACH_LINK ||
	    r == AGENT_REACH_GROUP || (r == AGENT_REACH_SELF && ours != AGENT_REACH_SELF))
		return -EADDRNOTAVAIL;
	n = snprintf(out, size, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
	return n < (int)size ? 0 : -ENAMETOOLONG;
}

uint64_t agent_address_number(const char *machine, const char *engine, const char *pool,
			      uint32_t first_rank)
{
	char name[1024];
	const int n =
		snprintf(name, sizeof(name), "%s\n%s\n%s\n%u", machine, engine, pool, first_rank);
	const uint64_t hash =
		kvr_hash_bytes(name, n < (int)sizeof(name) ? (uint64_t)n : sizeof(name) - 1) >> 16;

	return hash != 0 ? hash : 1;
}
