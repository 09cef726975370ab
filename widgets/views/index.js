// The one entry: a stub widget asks for its view by name.
import { collective } from './collective.js';
import { mount } from './host.js';
import { memory } from './memory.js';
import { pipeline } from './pipeline.js';

const views = { collective, memory, pipeline };

function render(name, given) {
  try {
    return mount(views[name], given);
  } catch (error) {
    console.error(error);
    given.el.textContent = `Playbook could not draw "${name}": ${String(error.stack || error).split('\n').slice(0, 3).join(' ')}`;
    return undefined;
  }
}

export default { initialize() { return { render }; } };
