/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names that one process of a network namespace may hold: abstract sockets, which the kernel
 * releases when the process dies.
 */
#include "port_pvt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int kvr_port__hold(const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "%s", name);
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&a,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

static int claim_address(struct kvr_port *port, const char *key, int family, const void *ip,
			 int *held, struct port_err e)
{
	char iface[16], text[INET6_ADDRSTRLEN], name[107];
	int fd;

	kvr_port__argument(port->conf.device, "iface", iface, sizeof(iface));
	if (iface[0] == '\0' || inet_ntop(family, ip, text, sizeof(text)) == NULL)
		return 0;
	snprintf(name, sizeof(name), "kvroute-%s-%s-%u-%u", iface, text, port->conf.udp_port,
		 port->conf.vlan);
	fd = kvr_port__hold(name);
	if (fd == -EADDRINUSE)
		return kvr_port__fail(
			e, fd,
			"%s: \"%s\" with udp_port %u is served at \"%s\" by another process, allowed: one router for each address and port",
			key, text, port->conf.udp_port, iface);
	if (fd < 0)
		return kvr_port__fail(e, fd, "%s: cannot create a socket: %s", key, strerror(-fd));
	*held = fd;
	return 0;
}

/*
 * An interface delivers its frames to every packet socket. Two routers with one address would both
 * answer everything, or one would receive nothing if the other has an XDP program.
 */
int kvr_port__addresses_claim(struct kvr_port *port, struct port_err e)
{
	const struct kvr_local *local = &port->rules.local;
	int rc = 0;

	if (strncmp(port->conf.device, "net_af_packet", 13) != 0 &&
	    strncmp(port->conf.device, "net_af_xdp", 10) != 0)
		return 0;
	if (port->conf.ipv4[0] != '\0')
		rc = claim_address(port, "ipv4", AF_INET, local->ip4, &port->claim[0], e);
	if (rc == 0 && port->conf.ipv6[0] != '\0')
		rc = claim_address(port, "ipv6", AF_INET6, local->ip6, &port->claim[1], e);
	return rc;
}

void kvr_port__addresses_release(struct kvr_port *port)
{
	for (uint32_t i = 0; i < RTE_DIM(port->claim); i++) {
		if (port->claim[i] > 0)
			close(port->claim[i]);
		port->claim[i] = 0;
	}
}
