// Loaded before a server that listens on all addresses of a computer: it listens on this computer's own alone, and says
// at which port.
import net from 'node:net';

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  this.once('listening', () => console.error(`loopback: ${this.address().port}`));
  return listen.call(this, Number(port), '127.0.0.1', ...rest.filter((arg) => typeof arg === 'function'));
};
