/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsing and rewriting of ZMQ endpoints. */
#include "endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"

#define TCP "tcp://"

/* The port behind the last colon; 0: none. */
static uint32_t port_of(const char *text)
{
	const char *colon = strrchr(text, ':');
	unsigned long port;
	char *end;

	if (strncmp(text, TCP, 6) != 0 || colon < text + 7 || colon[1] < '0' || colon[1] > '9')
		return 0;
	port = strtoul(colon + 1, &end, 10);
	return *end == '\0' && port <= 65535 ? (uint32_t)port : 0;
}

bool agent_endpoint_valid(const char *text)
{
	return (strncmp(text, "ipc://", 6) == 0 && text[6] != '\0') || port_of(text) != 0;
}

void agent_endpoint_of(const char *first, uint32_t rank, char *buf, size_t len)
{
	const uint32_t port = port_of(first);

	if (rank == 0)
		snprintf(buf, len, "%s", first);
	else if (port != 0)
		snprintf(buf, len, "%.*s:%u", (int)(strrchr(first, ':') - first), first,
			 port + rank);
	else
		snprintf(buf, len, "%s.%u", first, rank);
}

void agent_endpoint_reach(const char *text, const char *engine, char *buf, size_t len)
{
	static const char *const any[] = {"*", "0.0.0.0", "::", "[::]"};
	const char *host = text + 6, *colon = strrchr(text, ':'), *at = engine + strlen("http://");
	int n = (int)strcspn(at, "/");

	if (port_of(text) == 0) {
		snprintf(buf, len, "%s", text);
		return;
	}
	if (at[0] == '[')
		n = (int)strcspn(at, "]") + 1;
	else if (memchr(at, ':', (size_t)n) != NULL)
		n = (int)strcspn(at, ":");
	for (unsigned int i = 0; i < sizeof(any) / sizeof(any[0]); i++) {
		if (strlen(any[i]) == (size_t)(colon - host) &&
		    strncmp(any[i], host, (size_t)(colon - host)) == 0) {
			snprintf(buf, len, TCP "%.*s%s", n, at, colon);
			return;
		}
	}
	snprintf(buf, len, "%s", text);
}

bool agent_endpoint_is(const char *text, const char *ours, const char *facing)
{
	char host[256], port[8], our_host[256], our_port[8];

	if (strncmp(text, TCP, 6) != 0 ||
	    agent_address_split(text + 6, host, sizeof(host), port) < 0 ||
	    agent_address_split(ours, our_host, sizeof(our_host), our_port) < 0 ||
	    strcmp(port, our_port) != 0)
		return false;
	return strcmp(host, our_host) == 0 || strcmp(host, facing) == 0 ||
	       agent_address_reach(host) == AGENT_REACH_SELF;
}
