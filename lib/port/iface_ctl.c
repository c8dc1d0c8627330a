/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Link state of ports other than memif clients. Drivers of kernel interfaces (net_af_packet,
 * net_af_xdp) report the link up from their start on, whatever happens to the interface. For these
 * the kernel is queried. An interface that was removed does not return under the same index, and
 * the driver's sockets stay without one.
 */
#include "port_pvt.h"

#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

void kvr_port__iface_init(struct kvr_port *port)
{
	struct kvr_port_link *watch = &port->link;
	const char *driver = port->dev.driver_name;

	watch->iface[0] = '\0';
	if (driver != NULL &&
	    (strcmp(driver, "net_af_packet") == 0 || strcmp(driver, "net_af_xdp") == 0))
		kvr_port__argument(port->conf.device, "iface", watch->iface, sizeof(watch->iface));
	watch->ifindex = watch->iface[0] != '\0' ? if_nametoindex(watch->iface) : 0;
	if (watch->ifindex == 0 && driver != NULL && strcmp(driver, "net_af_packet") == 0)
		watch->ifindex = port->dev.if_index; /* device probed by EAL options */
}

/* If the kernel cannot be queried (no free descriptor), the state stays as it was. */
static enum kvr_port_link_state ask_kernel(const struct kvr_port_link *watch)
{
	const enum kvr_port_link_state before =
		atomic_load_explicit(&watch->seen, memory_order_relaxed);
	struct ifreq r = {.ifr_ifindex = (int)watch->ifindex};
	enum kvr_port_link_state now = before;
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return before;
	if (ioctl(fd, SIOCGIFNAME, &r) != 0) /* names change, indices do not */
		now = errno == ENODEV ? KVR_PORT_GONE : before;
	else if (ioctl(fd, SIOCGIFFLAGS, &r) == 0)
		now = (r.ifr_flags & IFF_RUNNING) != 0 ? KVR_PORT_UP : KVR_PORT_DOWN;
	close(fd);
	return now;
}

enum kvr_port_link_state kvr_port__iface_look(struct kvr_port *port)
{
	struct kvr_port_link *watch = &port->link;
	struct rte_eth_link link = {0};
	enum kvr_port_link_state seen;

	if (watch->ifindex == 0)
		return rte_eth_link_get_nowait(port->ethdev, &link) != 0 ||
				       link.link_status == RTE_ETH_LINK_UP
			       ? KVR_PORT_UP
			       : KVR_PORT_DOWN;
	if (atomic_load_explicit(&watch->seen, memory_order_relaxed) == KVR_PORT_GONE)
		return KVR_PORT_GONE;
	seen = ask_kernel(watch);
	if (seen == KVR_PORT_GONE) {
		kvr_port__xdp_gone(port);
		kvr_port__addresses_release(port); /* release the name for another router */
	}
	return seen;
}
