/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The link of a port that is no memif client. Drivers of kernel interfaces (net_af_packet,
 * net_af_xdp) say that it is up from their start on, whatever happens to the interface: there the
 * kernel is asked. One that was removed does not come back under the same number, and the driver's
 * sockets stay without it.
 */
#include "port_pvt.h"

#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

void kvr_port__iface_init(struct kvr_port *p)
{
	struct kvr_port_link *k = &p->link;
	const char *driver = p->dev.driver_name;

	k->iface[0] = '\0';
	if (driver != NULL &&
	    (strcmp(driver, "net_af_packet") == 0 || strcmp(driver, "net_af_xdp") == 0))
		kvr_port__argument(p->conf.device, "iface", k->iface, sizeof(k->iface));
	k->ifindex = k->iface[0] != '\0' ? if_nametoindex(k->iface) : 0;
	if (k->ifindex == 0 && driver != NULL && strcmp(driver, "net_af_packet") == 0)
		k->ifindex = p->dev.if_index; /* probed by the EAL's options */
}

/* A kernel that cannot be asked (no descriptor left) changes nothing. */
static enum kvr_port_link_state ask_kernel(const struct kvr_port_link *k)
{
	const enum kvr_port_link_state before =
		atomic_load_explicit(&k->seen, memory_order_relaxed);
	struct ifreq r = {.ifr_ifindex = (int)k->ifindex};
	enum kvr_port_link_state now = before;
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return before;
	if (ioctl(fd, SIOCGIFNAME, &r) != 0) /* names change, numbers do not */
		now = errno == ENODEV ? KVR_PORT_GONE : before;
	else if (ioctl(fd, SIOCGIFFLAGS, &r) == 0)
		now = (r.ifr_flags & IFF_RUNNING) != 0 ? KVR_PORT_UP : KVR_PORT_DOWN;
	close(fd);
	return now;
}

enum kvr_port_link_state kvr_port__iface_look(struct kvr_port *p)
{
	struct kvr_port_link *k = &p->link;
	struct rte_eth_link link = {0};
	enum kvr_port_link_state seen;

	if (k->ifindex == 0)
		return rte_eth_link_get_nowait(p->ethdev, &link) != 0 ||
				       link.link_status == RTE_ETH_LINK_UP
			       ? KVR_PORT_UP
			       : KVR_PORT_DOWN;
	if (atomic_load_explicit(&k->seen, memory_order_relaxed) == KVR_PORT_GONE)
		return KVR_PORT_GONE;
	seen = ask_kernel(k);
	if (seen == KVR_PORT_GONE) {
		kvr_port__xdp_gone(p);
		kvr_port__addresses_release(p); /* another router may have the name */
	}
	return seen;
}
