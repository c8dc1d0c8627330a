-- SPDX-License-Identifier: BSD-3-Clause
-- Requests with bookings: send COUNT frames (environment variable), which must be the number of frames of the file.
package.path = package.path .. ";?.lua;test/?.lua;app/?.lua;"
require "Pktgen"

pktgen.set("0", "count", tonumber(os.getenv("COUNT") or "4096"))
pktgen.set("0", "rate", tonumber(os.getenv("RATE") or "1"))
pktgen.pcap("0", "enable")
pktgen.start("0")
pktgen.delay(20000)
local s = pktgen.portStats("0", "port")[0]
printf("sent %d, received %d\n", s.opackets, s.ipackets)
pktgen.quit()
