import Graph from 'graphology';
import Sigma from 'sigma';
import { EdgeLineProgram } from 'sigma/rendering';
import forceAtlas2 from 'graphology-layout-forceatlas2';
import ForceAtlas2Worker from 'graphology-layout-forceatlas2/worker';

export { EdgeLineProgram, ForceAtlas2Worker, Graph, Sigma, forceAtlas2 };
